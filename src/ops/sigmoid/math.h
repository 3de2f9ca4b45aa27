#pragma once

#include "core/logistic.h"

namespace cppcuda::ops::sigmoid {

struct ForwardMath {
  template <class A>
  CPPCUDA_HOST_DEVICE A operator()(A x) const {
    return core::logistic(x);
  }
};

struct BackwardMath {
  template <class A>
  CPPCUDA_HOST_DEVICE A operator()(A grad, A output) const {
    return grad * ((A(1) - output) * output);
  }
};

}  // namespace cppcuda::ops::sigmoid
