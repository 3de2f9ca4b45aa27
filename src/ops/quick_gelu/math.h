#pragma once

#include <c10/macros/Macros.h>

#include <cmath>

#include "ops/sigmoid/math.h"

namespace cppcuda::ops::quick_gelu {

// D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016: near x * Phi(x).
constexpr double slope = 1.702;

struct ForwardMath {
  template <class A>
  C10_HOST_DEVICE A operator()(A x) const {
    return x * sigmoid::ForwardMath()(A(slope) * x);
  }
};

struct BackwardMath {
  // With s = sigmoid(slope x): grad (s + slope x s (1 - s)). 1 - s is sigmoid(-slope x), so that it keeps its digits
  // where s is near 1; s (1 - s) goes to 0 before x may become large.
  template <class A>
  C10_HOST_DEVICE A operator()(A grad, A x) const {
    const A s = sigmoid::ForwardMath()(A(slope) * x), rest = sigmoid::ForwardMath()(-A(slope) * x);
    return grad * (s + A(slope) * (x * (s * rest)));
  }
};

}  // namespace cppcuda::ops::quick_gelu
