#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/functions.h"
#include "cppcuda/kit/math/logistic.h"

namespace formulas {

namespace kit = cppcuda::kit;

// x tanh(softplus(x)).
struct Mish {
  static constexpr char schema[] = "formulas::mish(Tensor x)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return x * kit::tanh(kit::softplus(x));
  }
};

}  // namespace formulas
