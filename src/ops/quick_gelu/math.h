#pragma once

#include <c10/macros/Macros.h>

#include <cmath>

#include "core/select.h"
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
  // With s = sigmoid(slope x): grad (s + slope x s (1 - s)). Of e = exp(-|slope x|), which cannot overflow, s is
  // 1 / (1 + e) or e / (1 + e), and 1 - s is the other one, so that both keep their digits. (Their product
  // goes to 0 before x may become large.)
  template <class A>
  C10_HOST_DEVICE A operator()(A grad, A x) const {
    using core::select;
    using std::abs;
    using std::exp;
    const A t = A(slope) * x, e = exp(-abs(t)), near = A(1) / (A(1) + e), far = e * near;
    return grad * (select(t < A(0), far, near) + A(slope) * (x * (far * near)));
  }
};

}  // namespace cppcuda::ops::quick_gelu
