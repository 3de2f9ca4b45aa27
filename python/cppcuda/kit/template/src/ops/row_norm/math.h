// The formulas, for the CPU and CUDA kernels. Change: all of it. A is float or double, or a vector of them.
#pragma once

#include <cmath>
#include <cstdint>

#include "cppcuda/kit/math/host_device.h"

namespace my_ops::ops::row_norm {

// 1 / sqrt(mean square + eps), from the sum of the squares of a row.
template <class A>
CPPCUDA_HOST_DEVICE A reciprocal_std(A squares, int64_t features, double eps) {
  using std::sqrt;
  return A(1) / sqrt(squares / static_cast<A>(features) + static_cast<A>(eps));
}

// The gradient of one value. mean: that of grad * output over the row.
template <class A>
CPPCUDA_HOST_DEVICE A input_gradient(A grad, A input, A rstd, A mean) {
  return rstd * (grad - rstd * mean * input);
}

}  // namespace my_ops::ops::row_norm
