#include "core/pointwise_cpu_loop.h"
#include "ops/quick_gelu/math.h"

namespace cppcuda {

template struct core::PointwiseKernel<core::Isa, ops::quick_gelu::ForwardMath, /*inputs*/ 1>;
template struct core::PointwiseKernel<core::Isa, ops::quick_gelu::BackwardMath, /*inputs*/ 2>;

}  // namespace cppcuda
