#include "core/pointwise_cpu_loop.h"
#include "ops/quick_gelu/math.h"

namespace cppcuda {

using namespace ops::quick_gelu;

template struct core::PointwiseKernel<core::Isa, ForwardMath, /*inputs*/ 1>;
template struct core::PointwiseKernel<core::Isa, BackwardMath, /*inputs*/ 2>;

}  // namespace cppcuda
