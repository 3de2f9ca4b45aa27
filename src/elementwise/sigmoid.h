#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace cppcuda::elementwise {

// The derivative reads only the output, so the input is not kept alive.
struct Sigmoid {
  static constexpr char schema[] = "cppcuda::sigmoid(Tensor input)";
  static constexpr auto saves = kit::Saves::output;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return kit::logistic(x);
  }

  template <class A>
  CPPCUDA_HOST_DEVICE static A slope(A y) {
    return (A(1) - y) * y;
  }
};

}  // namespace cppcuda::elementwise
