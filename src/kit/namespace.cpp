// Defines the namespace of a library's operators, and in it the operator _library_path.

#include <dlfcn.h>
#include <torch/library.h>

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

// TORCH_LIBRARY does not expand a macro in its argument.
#define DEFINE_NAMESPACE(name) \
  TORCH_LIBRARY(name, m) { m.def("_library_path() -> str", &library_path); }
DEFINE_NAMESPACE(CPPCUDA_NAMESPACE)

}  // namespace
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
