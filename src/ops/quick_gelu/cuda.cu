#include "core/pointwise_cuda.cuh"
#include "ops/quick_gelu/math.h"

namespace cppcuda::ops::quick_gelu {

[[maybe_unused]] static const bool added =
    core::add_pointwise_cuda<ForwardMath, /*inputs*/ 1>() && core::add_pointwise_cuda<BackwardMath, /*inputs*/ 2>();

}  // namespace cppcuda::ops::quick_gelu
