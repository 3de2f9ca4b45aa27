// The parts of the library that do not belong to an operator.

#include <cppcuda/cppcuda.h>

namespace cppcuda {

const char* torch_version() { return CPPCUDA_TORCH_VERSION; }

}  // namespace cppcuda
