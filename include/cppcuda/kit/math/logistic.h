#pragma once

// The logistic function, for formulas.

#include <cmath>

#include "cppcuda/kit/math/dual.h"
#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/select.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// 1 / (1 + exp(-x)). For large -x, exp overflows to infinity, and the quotient is correctly 0.
template <class A>
CPPCUDA_HOST_DEVICE A logistic(A x) {
  using std::exp;
  return A(1) / (A(1) + exp(-x));
}

// log(1 + exp(x)), whose derivative is logistic(x). Written with max and abs, its second derivative at 0 would be 0.
template <class A>
CPPCUDA_HOST_DEVICE A softplus(A x) {
  return kit::max(x, A(0)) + kit::log1p(kit::exp(-kit::abs(x)));
}

// logistic(x) and logistic(-x), for formulas that also need the derivative, which is their product and does not suffer
// from cancellation. They are 1 / (1 + e) and e / (1 + e) with e = exp(-|x|), which cannot overflow.
template <class A>
struct Logistic {
  A value, complement;

  CPPCUDA_HOST_DEVICE explicit Logistic(A x) {
    using std::abs, std::exp;
    const A e = exp(-abs(x)), large = A(1) / (A(1) + e), small = e * large;
    value = select(x < A(0), small, large);
    complement = select(x < A(0), large, small);
  }

  CPPCUDA_HOST_DEVICE A slope() const { return value * complement; }
};

// Its derivative does not suffer from cancellation either.
template <class A>
struct Logistic<Dual<A>> {
  Dual<A> value, complement;

  CPPCUDA_HOST_DEVICE explicit Logistic(Dual<A> x) {
    const Logistic<A> s(x.value);
    value = x.with(s.value, [&]() CPPCUDA_LAMBDA { return s.slope(); });
    complement = x.with(s.complement, [&]() CPPCUDA_LAMBDA { return -s.slope(); });
  }

  CPPCUDA_HOST_DEVICE Dual<A> slope() const { return value * complement; }
};

template <class A>
CPPCUDA_HOST_DEVICE Dual<A> logistic(Dual<A> x) {
  return Logistic<Dual<A>>(x).value;
}
template <class A>
CPPCUDA_HOST_DEVICE Dual<A> softplus(Dual<A> x) {
  return x.with(softplus(x.value), [&]() CPPCUDA_LAMBDA { return logistic(x.value); });
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
