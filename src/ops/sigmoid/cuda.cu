#include "core/pointwise_cuda.cuh"
#include "ops/sigmoid/math.h"

namespace cppcuda::ops::sigmoid {

[[maybe_unused]] static const bool added =
    core::add_pointwise_cuda<ForwardMath, /*inputs*/ 1>() && core::add_pointwise_cuda<BackwardMath, /*inputs*/ 2>();

}  // namespace cppcuda::ops::sigmoid
