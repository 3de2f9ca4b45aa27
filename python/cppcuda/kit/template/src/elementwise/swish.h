// The formula of swish, from which all kernels and derivatives follow. Change: the schema and forward. Attributes (such
// as beta) are the arguments of the schema that are not tensors. A is a number, a vector of numbers or, for
// derivatives, one of these with its derivative. A member under_autocast chooses what autocast does.
// python/my_ops/samples/swish.py lists the files that are still the template's.
#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace my_ops {

namespace kit = cppcuda::kit;

struct Swish {
  static constexpr char schema[] = "my_ops::swish(Tensor x, float beta)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A beta) {
    return x * kit::logistic(beta * x);
  }
};

}  // namespace my_ops
