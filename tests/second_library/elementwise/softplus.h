#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/functions.h"

namespace second {

namespace kit = cppcuda::kit;

// An elementwise operator that uses functions of the C library: log(1 + exp(x)), without overflow.
struct Softplus {
  static constexpr char schema[] = "second::softplus(Tensor x)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x) {
    return kit::max(x, A(0)) + kit::log1p(kit::exp(-kit::abs(x)));
  }
};

}  // namespace second
