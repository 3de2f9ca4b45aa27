#include "core/pointwise_cpu_loop.h"
#include "ops/sigmoid/math.h"

namespace cppcuda {

using namespace ops::sigmoid;

template struct core::PointwiseKernel<core::Isa, ForwardMath, /*inputs*/ 1>;
template struct core::PointwiseKernel<core::Isa, BackwardMath, /*inputs*/ 2>;

}  // namespace cppcuda
