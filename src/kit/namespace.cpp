// Defines the namespace of a library's operators, and in it the operators _library_path and _torch_version.

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/library.h>
#include <torch/version.h>

#include <stdexcept>
#include <string>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/kernels.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace {

// The file of the operators: the process may have loaded another copy than the requested one. Python packages call this
// on import, so it also detects a library of kernels from another build.
std::string library_path() {
  check_kernels();
  Dl_info info;
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&library_path), &info), library_name(), ": dladdr failed");
  return info.dli_fname;
}

// The torch that this library was built with.
std::string torch_version() { return TORCH_VERSION; }

// Runs before the operators are registered. Another minor version of torch has other classes: a call might find all its
// symbols and nevertheless destroy memory. An error here ends the process, because a library that is being loaded
// cannot throw, so a Python package selects the library by torch's version before it loads one.
[[gnu::constructor(101)]] void check_torch() {
  const uint64_t version = aoti_torch_abi_version();
  const auto major = version >> 56, minor = version >> 48 & 0xff;
  if (major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR) return;
  throw std::runtime_error(c10::str(library_name(), ": this library was built with torch ", TORCH_VERSION,
                                    " and cannot be loaded with torch ", major, ".", minor));
}

// TORCH_LIBRARY does not expand a macro in its argument.
#define DEFINE_NAMESPACE(name)                        \
  TORCH_LIBRARY(name, m) {                            \
    m.def("_library_path() -> str", &library_path);   \
    m.def("_torch_version() -> str", &torch_version); \
  }
DEFINE_NAMESPACE(CPPCUDA_NAMESPACE)

}  // namespace
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
