#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace cppcuda::elementwise {

// D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016: an approximation of x * Phi(x).
struct QuickGelu {
  static constexpr char schema[] = "cppcuda::quick_gelu(Tensor input)";
  static constexpr double k = 1.702;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return x * kit::logistic(A(k) * x);
  }
};

}  // namespace cppcuda::elementwise
