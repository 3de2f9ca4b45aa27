#pragma once

// One element of the state, from its three gates g0, g1, g2 before their activations:
//
//   i = sigmoid(g0)   o = sigmoid(g1)   c = elu(g2)
//   cy = cx + c i     hy = tanh(cy) o

#include <cmath>

#include "cppcuda/kit/math/functions.h"
#include "cppcuda/kit/math/logistic.h"

namespace cppcuda::ops::lltm_cell {

using kit::Logistic;
using kit::select;

template <class A>
CPPCUDA_HOST_DEVICE A elu(A x) {
  using kit::expm1_of_negative;
  return select(x <= A(0), expm1_of_negative(x), x);
}

template <class A>
CPPCUDA_HOST_DEVICE A elu_slope(A x) {
  using std::exp;
  return select(x <= A(0), exp(x), A(1));
}

template <class A>
struct State {
  A hy, cy;
};

template <class A>
CPPCUDA_HOST_DEVICE State<A> cell(A g0, A g1, A g2, A cx) {
  using std::tanh;
  const A cy = cx + elu(g2) * Logistic<A>(g0).value;
  return {tanh(cy) * Logistic<A>(g1).value, cy};
}

template <class A>
struct Gradients {
  A g0, g1, g2, cx;
};

// The terms of an absent gradient are skipped, because 0 times an infinite value would be NaN.
template <bool HY, bool CY, class A>
CPPCUDA_HOST_DEVICE Gradients<A> cell_backward(A grad_hy, A grad_cy, A g0, A g1, A g2, A cx) {
  using std::tanh;
  const Logistic<A> i(g0), o(g1);
  const A c = elu(g2), t = tanh(cx + c * i.value);
  A total_grad_cy = CY ? grad_cy : A(0);
  if (HY) total_grad_cy += grad_hy * o.value * ((A(1) - t) * (A(1) + t));
  return {total_grad_cy * c * i.slope(), HY ? grad_hy * t * o.slope() : A(0), total_grad_cy * i.value * elu_slope(g2),
          total_grad_cy};
}

// The same, for gradients of which a kernel learns when it runs whether they are given. At least one is.
template <class A>
CPPCUDA_HOST_DEVICE Gradients<A> cell_backward(bool has_hy, bool has_cy, A grad_hy, A grad_cy, A g0, A g1, A g2, A cx) {
  return !has_cy   ? cell_backward<true, false>(grad_hy, grad_cy, g0, g1, g2, cx)
         : !has_hy ? cell_backward<false, true>(grad_hy, grad_cy, g0, g1, g2, cx)
                   : cell_backward<true, true>(grad_hy, grad_cy, g0, g1, g2, cx);
}

}  // namespace cppcuda::ops::lltm_cell
