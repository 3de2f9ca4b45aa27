#include "cppcuda/kit/kernels.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/memory.h"
#include "kernel_headers.h"

extern "C" const cppcuda::kit::KernelTable* CPPCUDA_KERNEL_TABLE();

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace {

std::string file_of(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0) return "an unknown file";
  return std::filesystem::path(info.dli_fname).lexically_normal();  // the kernels are found as torch-2.15/../lib*.so
}

Capability capability() {
  const auto name = at::get_cpu_capability();
  return name == "AVX512" ? Capability::avx512 : name == "AVX2" ? Capability::avx2 : Capability::base;
}

// The instruction set that torch uses, if there are kernels for it or for an older one.
Capability checked_capability() {
  check_kernels();
  constexpr const char* names[] = {"base", "AVX2", "AVX-512"};
  const KernelTable* const table = CPPCUDA_KERNEL_TABLE();
  const Capability here = capability();
  TORCH_CHECK(here >= table->oldest, library_name(), ": the CPU kernels in ", file_of(table), " were compiled for ",
              names[static_cast<int>(table->oldest)], " (CPPCUDA_ISAS), but torch uses ", names[static_cast<int>(here)],
              " here, because of the processor or of ATEN_CPU_CAPABILITY");
  return here;
}

void parallel_for(int64_t count, int64_t grain_size, const void* task,
                  void (*call)(const void* task, int64_t begin, int64_t end)) {
  at::parallel_for(0, count, grain_size, [&](int64_t begin, int64_t end) { call(task, begin, end); });
}

// Reads the first member only, because the table of another build may have another layout.
bool is_this_build(const KernelTable& table) { return std::string_view(table.headers) == CPPCUDA_KERNEL_HEADERS; }

}  // namespace

const char* library_name() { return CPPCUDA_LIBRARY; }
const char* cuda_option() { return CPPCUDA_CUDA_OPTION; }

void check_kernels() {
  const KernelTable* const table = CPPCUDA_KERNEL_TABLE();
  TORCH_CHECK(is_this_build(*table), library_name(), ": ", file_of(reinterpret_cast<const void*>(&check_kernels)),
              " and the library of its kernels, ", file_of(table),
              ", come from different builds. Install both from one build, and load no other copy of ",
              "the kernels before.");
}

AnyKernel look_up(const char* name) {
  check_kernels();
  const AnyKernel kernel = CPPCUDA_KERNEL_TABLE()->find(name);
  TORCH_INTERNAL_ASSERT(kernel != nullptr, "no kernel ", name);
  return kernel;
}

const CpuContext& cpu_context() {
  static const CpuContext context{
      .capability = checked_capability(), .cache_bytes = cache_bytes(), .parallel_for = &parallel_for};
  return context;
}

bool has_cuda_kernels() { return !is_this_build(*CPPCUDA_KERNEL_TABLE()) || CPPCUDA_KERNEL_TABLE()->has_cuda; }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
