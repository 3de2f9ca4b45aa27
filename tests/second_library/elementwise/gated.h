#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/logistic.h"

namespace second {

namespace kit = cppcuda::kit;

// An elementwise operator of two tensors whose derivatives are written by hand: x sigmoid(gate).
struct Gated {
  static constexpr char schema[] = "second::gated(Tensor x, Tensor gate)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A gate) {
    return x * kit::logistic(gate);
  }

  template <class A>
  CPPCUDA_HOST_DEVICE static kit::PerInput<A, 2> slopes(A x, A gate) {
    const kit::Logistic<A> s(gate);
    return {s.value, x * s.slope()};
  }
};

}  // namespace second
