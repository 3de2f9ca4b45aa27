#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/functions.h"

namespace formulas {

namespace kit = cppcuda::kit;

// The sine.
struct Sin {
  static constexpr char schema[] = "formulas::sin(Tensor x)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return kit::sin(x);
  }
};

}  // namespace formulas
