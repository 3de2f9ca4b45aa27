#pragma once

#include "core/logistic.h"
#include "core/pointwise_math.h"

namespace second {

namespace core = cppcuda::core;

// An elementwise operator with an attribute: x sigmoid(beta x).
struct Swish {
  static constexpr char schema[] = "second::swish(Tensor x, float beta)";
  static constexpr auto saves = core::Saves::input;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A beta) {
    return x * core::logistic(beta * x);
  }

  template <class A>
  CPPCUDA_HOST_DEVICE static A slope(A x, A beta) {
    const core::Logistic<A> s(beta * x);
    return s.value + beta * (x * s.slope());
  }
};

}  // namespace second
