#pragma once

#include "cppcuda/kit/elementwise/math.h"

namespace second {

namespace kit = cppcuda::kit;

// An elementwise operator of three tensors, with a formula alone: height / (1 + ((x - center) / width)^2).
struct Lorentzian {
  static constexpr char schema[] = "second::lorentzian(Tensor x, Tensor center, Tensor height, float width)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A center, A height, A width) {
    const A t = (x - center) / width;
    return height / (A(1) + t * t);
  }
};

}  // namespace second
