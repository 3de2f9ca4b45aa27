// The parts of the library that do not belong to an operator.

#include <cppcuda/cppcuda.h>
#include <torch/version.h>

namespace cppcuda {

const char* torch_version() { return TORCH_VERSION; }

}  // namespace cppcuda
