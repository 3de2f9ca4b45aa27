#pragma once

#include <c10/macros/Macros.h>

#include <cmath>

#include "core/select.h"

namespace cppcuda::ops::sigmoid {

struct ForwardMath {
  // exp overflows to infinity for large -x, and the quotient is 0 then, as it should be.
  template <class A>
  C10_HOST_DEVICE A operator()(A x) const {
    using std::exp;
    return A(1) / (A(1) + exp(-x));
  }
};

struct BackwardMath {
  template <class A>
  C10_HOST_DEVICE A operator()(A grad, A output) const {
    return grad * ((A(1) - output) * output);
  }
};

// Value and derivative of one that is part of something else: neither overflows or cancels, as of e = exp(-|x|), which is
// 1 at most, sigmoid(x) is 1 / (1 + e) or e / (1 + e), and 1 - sigmoid(x) the other one.
template <class A>
struct Sigmoid {
  A value, slope;

  C10_HOST_DEVICE explicit Sigmoid(A x) {
    using core::select;
    using std::abs, std::exp;
    const A e = exp(-abs(x)), large = A(1) / (A(1) + e), small = e * large;
    value = select(x < A(0), small, large);
    slope = small * large;
  }
};

}  // namespace cppcuda::ops::sigmoid
