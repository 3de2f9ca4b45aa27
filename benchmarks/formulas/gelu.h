#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/functions.h"

namespace formulas {

namespace kit = cppcuda::kit;

// x times the normal distribution function of x.
struct Gelu {
  static constexpr char schema[] = "formulas::gelu(Tensor x)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return A(0.5) * x * (A(1) + kit::erf(x * A(0x1.6a09e667f3bcdp-1)));
  }
};

}  // namespace formulas
