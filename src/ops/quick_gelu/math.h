#pragma once

#include "core/logistic.h"

namespace cppcuda::ops::quick_gelu {

// D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016: near x * Phi(x).
constexpr double slope = 1.702;

struct ForwardMath {
  template <class A>
  CPPCUDA_HOST_DEVICE A operator()(A x) const {
    return x * core::logistic(A(slope) * x);
  }
};

struct BackwardMath {
  // With s = sigmoid(slope x): grad (s + slope x s (1 - s)). The last product goes to 0 before x may become large.
  template <class A>
  CPPCUDA_HOST_DEVICE A operator()(A grad, A x) const {
    const core::Logistic<A> s(A(slope) * x);
    return grad * (s.value + A(slope) * (x * s.slope()));
  }
};

}  // namespace cppcuda::ops::quick_gelu
