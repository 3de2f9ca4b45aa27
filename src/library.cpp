// The parts of the library that do not belong to an operator.

#include <cppcuda/cppcuda.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <string>

#include "cppcuda/kit/kernels.h"

namespace cppcuda {

const char* torch_version() { return CPPCUDA_TORCH_VERSION; }

namespace {

// The file of the operators: the process may have loaded another copy than the requested one. The Python package calls
// this on import, so it also detects a library of kernels from another build.
std::string library_path() {
  kit::check_kernels();
  Dl_info info;
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&torch_version), &info), "cppcuda: dladdr failed");
  return info.dli_fname;
}

TORCH_LIBRARY(cppcuda, m) { m.def("_library_path() -> str", &library_path); }

}  // namespace
}  // namespace cppcuda
