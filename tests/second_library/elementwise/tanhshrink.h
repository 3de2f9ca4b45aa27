#pragma once

#include <cmath>

#include "cppcuda/kit/elementwise/math.h"

namespace second {

namespace kit = cppcuda::kit;

// An elementwise operator whose second derivative is written by hand: x - tanh(x). Autocast computes it in float32,
// because it cancels.
struct Tanhshrink {
  static constexpr char schema[] = "second::tanhshrink(Tensor x)";
  static constexpr auto under_autocast = kit::CastPolicy::fp32;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    using std::tanh;
    return x - tanh(x);
  }

  template <class A>
  CPPCUDA_HOST_DEVICE static A slope(A x) {
    using std::tanh;
    const A t = tanh(x);
    return t * t;
  }

  // 2 tanh(x) / cosh(x)^2. The derivative of slope would be 2 tanh(x) (1 - tanh(x)^2), which is 0 for large x.
  template <class A>
  CPPCUDA_HOST_DEVICE static A slope_of_slope(A x) {
    using std::abs, std::exp, std::tanh;
    const A e = exp(-abs(x)), sech = A(2) * e / (A(1) + e * e);
    return A(2) * tanh(x) * sech * sech;
  }
};

}  // namespace second
