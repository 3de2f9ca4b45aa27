#include "cppcuda/kit/kernels.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/library.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/memory.h"
#include "library.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
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
  const KernelTable* const table = library.kernels();
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
bool is_this_build(const KernelTable& table) { return std::string_view(table.headers) == library.headers; }

// The file of the operators: the process may have loaded another copy than the requested one. Python packages call this
// on import, so it also detects a library of kernels from another build.
std::string library_path() {
  check_kernels();
  Dl_info info;
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&library_path), &info), library_name(), ": dladdr failed");
  return info.dli_fname;
}

}  // namespace

// Another minor version of torch has other classes: a call might find all its symbols and nevertheless destroy memory.
// An error here ends the process, because a library that is being loaded cannot throw, so a Python package selects the
// library by torch's version before it loads one.
void check_torch(const char* version, int major, int minor) {
  const uint64_t loaded = aoti_torch_abi_version();
  const int loaded_major = static_cast<int>(loaded >> 56), loaded_minor = static_cast<int>(loaded >> 48 & 0xff);
  if (loaded_major == major && loaded_minor == minor) return;
  throw std::runtime_error(c10::str(library_name(), ": this library was built with torch ", version,
                                    " and cannot be loaded with torch ", loaded_major, ".", loaded_minor));
}

bool define_namespace(const char* name, const char* torch_version) {
  static torch::Library m(torch::Library::DEF, name, std::nullopt, __FILE__, __LINE__);
  m.def("_library_path() -> str", &library_path);
  m.def("_torch_version() -> str", [text = std::string(torch_version)] { return text; });
  return true;
}

const char* library_name() { return library.name; }
const char* cuda_option() { return library.cuda_option; }

void check_kernels() {
  const KernelTable* const table = library.kernels();
  TORCH_CHECK(is_this_build(*table), library_name(), ": ", file_of(reinterpret_cast<const void*>(&check_kernels)),
              " and the library of its kernels, ", file_of(table),
              ", come from different builds. Install both from one build, and load no other copy of ",
              "the kernels before.");
}

AnyKernel look_up(const char* name) {
  check_kernels();
  const AnyKernel kernel = library.kernels()->find(name);
  if (kernel == nullptr) {
    const std::string types = c10::demangle(name);  // KernelName<Params, Context>
    const bool is_cpu = types.find("CpuContext") != std::string::npos;
    const size_t first = types.find('<') + 1, last = types.rfind(',');
    TORCH_CHECK(false, library_name(), ": there is no ", is_cpu ? "CPU" : "CUDA", " kernel for ",
                types.substr(first, last - first), ". Add it to the table with kit::add_to_table in ",
                is_cpu ? "a cpu/kernel.cpp" : "a .cu file");
  }
  return kernel;
}

void on_current_stream(c10::Device device, c10::function_ref<void(CudaStream&)> launch) {
  const c10::DeviceGuard guard(device);
  const auto current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  CudaStream stream{.device = device.index(), .handle = current.native_handle(), .error = {}};
  launch(stream);
  TORCH_CHECK(stream.error.empty(), "CUDA error: ", stream.error);
}

const CpuContext& cpu_context() {
  static const CpuContext context{
      .capability = checked_capability(), .cache_bytes = cache_bytes(), .parallel_for = &parallel_for};
  return context;
}

bool has_cuda_kernels() { return !is_this_build(*library.kernels()) || library.kernels()->has_cuda; }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
