#include "cppcuda/kit/kernel_table.h"

#include <string_view>
#include <unordered_map>

#include "kernel_headers.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

auto& kernels() {
  static std::unordered_map<std::string_view, AnyKernel> all;
  return all;
}

AnyKernel find(const char* name) {
  const auto kernel = kernels().find(name);
  return kernel == kernels().end() ? nullptr : kernel->second;
}

constexpr KernelTable table{
    .headers = CPPCUDA_KERNEL_HEADERS, .has_cuda = CPPCUDA_HAS_CUDA, .oldest = compiled::oldest, .find = &find};

}  // namespace

void add_to_table(const char* name, AnyKernel kernel) { kernels()[name] = kernel; }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail

extern "C" [[gnu::visibility("default")]] const cppcuda::kit::detail::KernelTable* CPPCUDA_KERNEL_TABLE() {
  return &cppcuda::kit::detail::table;
}
