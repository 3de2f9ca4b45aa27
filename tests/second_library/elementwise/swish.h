#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace second {

namespace kit = cppcuda::kit;

// An elementwise operator with an attribute: x sigmoid(beta x).
struct Swish {
  static constexpr char schema[] = "second::swish(Tensor x, float beta)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A beta) {
    return x * kit::logistic(beta * x);
  }
};

}  // namespace second
