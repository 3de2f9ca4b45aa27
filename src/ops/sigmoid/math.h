#pragma once

#include <c10/macros/Macros.h>

#include <cmath>

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

}  // namespace cppcuda::ops::sigmoid
