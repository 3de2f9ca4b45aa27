#include "core/pointwise_cpu_loop.h"
#include "ops/sigmoid/math.h"

namespace cppcuda {

template struct core::PointwiseKernel<core::Isa, ops::sigmoid::ForwardMath, /*inputs*/ 1>;
template struct core::PointwiseKernel<core::Isa, ops::sigmoid::BackwardMath, /*inputs*/ 2>;

}  // namespace cppcuda
