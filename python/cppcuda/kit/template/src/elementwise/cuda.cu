// The CUDA kernels. Change: nothing.
#include "cppcuda/kit/elementwise/cuda.cuh"
#include "elementwise/family.h"

namespace my_ops {

[[maybe_unused]] static const bool added = cppcuda::kit::add_elementwise_cuda(Family());

}  // namespace my_ops
