#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace cppcuda::elementwise {

// D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016: an approximation of x * Phi(x).
struct QuickGelu {
  static constexpr char schema[] = "cppcuda::quick_gelu(Tensor input)";
  static constexpr auto saves = kit::Saves::input;
  static constexpr double k = 1.702;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return x * kit::logistic(A(k) * x);
  }

  // s + k x s (1 - s) with s = sigmoid(k x). s (1 - s) goes to 0 faster than x grows.
  template <class A>
  CPPCUDA_HOST_DEVICE static A slope(A x) {
    const kit::Logistic<A> s(A(k) * x);
    return s.value + A(k) * (x * s.slope());
  }
};

}  // namespace cppcuda::elementwise
