#pragma once

#include <cmath>

#include "core/host_device.h"
#include "core/select.h"

namespace cppcuda::ops::sigmoid {

struct ForwardMath {
  // exp overflows to infinity for large -x, and the quotient is 0 then, as it should be.
  template <class A>
  CPPCUDA_HOST_DEVICE A operator()(A x) const {
    using std::exp;
    return A(1) / (A(1) + exp(-x));
  }
};

struct BackwardMath {
  template <class A>
  CPPCUDA_HOST_DEVICE A operator()(A grad, A output) const {
    return grad * ((A(1) - output) * output);
  }
};

// sigmoid(x) and sigmoid(-x), for what takes the derivative as well: their product, in which nothing cancels. Of
// e = exp(-|x|), which cannot overflow, they are 1 / (1 + e) and e / (1 + e).
template <class A>
struct Sigmoid {
  A value, complement;

  CPPCUDA_HOST_DEVICE explicit Sigmoid(A x) {
    using core::select;
    using std::abs, std::exp;
    const A e = exp(-abs(x)), large = A(1) / (A(1) + e), small = e * large;
    value = select(x < A(0), small, large);
    complement = select(x < A(0), large, small);
  }

  CPPCUDA_HOST_DEVICE A slope() const { return value * complement; }
};

}  // namespace cppcuda::ops::sigmoid
