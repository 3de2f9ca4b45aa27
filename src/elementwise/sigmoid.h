#pragma once

#include "core/logistic.h"
#include "core/pointwise_math.h"

namespace cppcuda::elementwise {

// Its derivative reads the output alone, so that the input is not kept alive.
struct Sigmoid {
  static constexpr char schema[] = "cppcuda::sigmoid(Tensor input)";
  static constexpr auto saves = core::Saves::output;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return core::logistic(x);
  }

  template <class A>
  CPPCUDA_HOST_DEVICE static A slope(A y) {
    return (A(1) - y) * y;
  }
};

}  // namespace cppcuda::elementwise
