#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace formulas {

namespace kit = cppcuda::kit;

// Log(1 + exp(x)).
struct Softplus {
  static constexpr char schema[] = "formulas::softplus(Tensor x)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return kit::softplus(x);
  }
};

}  // namespace formulas
