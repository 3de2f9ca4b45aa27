#pragma once

#include "core/logistic.h"
#include "core/pointwise_math.h"

namespace second {

namespace core = cppcuda::core;

// An elementwise operator of two tensors: x sigmoid(gate).
struct Gated {
  static constexpr char schema[] = "second::gated(Tensor x, Tensor gate)";
  static constexpr auto saves = core::Saves::input;

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A gate) {
    return x * core::logistic(gate);
  }

  template <class A>
  CPPCUDA_HOST_DEVICE static core::PerInput<A, 2> slopes(A x, A gate) {
    const core::Logistic<A> s(gate);
    return {s.value, x * s.slope()};
  }
};

}  // namespace second
