#include "core/pointwise_cuda.cuh"
#include "ops/sigmoid/math.h"

namespace cppcuda::core {

using ops::sigmoid::BackwardMath, ops::sigmoid::ForwardMath;

template struct PointwiseCudaKernel<ForwardMath, double, 1>;
template struct PointwiseCudaKernel<ForwardMath, float, 1>;
template struct PointwiseCudaKernel<ForwardMath, c10::Half, 1>;
template struct PointwiseCudaKernel<ForwardMath, c10::BFloat16, 1>;

template struct PointwiseCudaKernel<BackwardMath, double, 2>;
template struct PointwiseCudaKernel<BackwardMath, float, 2>;
template struct PointwiseCudaKernel<BackwardMath, c10::Half, 2>;
template struct PointwiseCudaKernel<BackwardMath, c10::BFloat16, 2>;

}  // namespace cppcuda::core
