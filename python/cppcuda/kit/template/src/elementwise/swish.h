// The formula of swish, from which all kernels and derivatives follow. Change: the schema, what backward saves, forward
// and slope. Attributes (such as beta) are the arguments of the schema that are not tensors. A is a number, a vector of
// numbers or, for second derivatives, a number with its derivative. A member under_autocast chooses what autocast does.
// python/my_ops/samples/swish.py lists the files that are still the template's.
#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace my_ops {

namespace kit = cppcuda::kit;

struct Swish {
  static constexpr char schema[] = "my_ops::swish(Tensor x, float beta)";
  static constexpr auto saves = kit::Saves::input;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A beta) {
    return x * kit::logistic(beta * x);
  }

  // The derivative of forward with respect to x.
  template <class A>
  CPPCUDA_HOST_DEVICE static A slope(A x, A beta) {
    const kit::Logistic<A> s(beta * x);
    return s.value + beta * (x * s.slope());
  }
};

}  // namespace my_ops
