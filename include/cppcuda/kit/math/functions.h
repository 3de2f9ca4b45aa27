#pragma once

// The functions that formulas may use, as kit::sin(x). They are those of <cmath>, with two exceptions: round() rounds
// halves to even, as torch does, and min() and max() are NaN if an argument is. Their arguments are numbers, vectors
// (cpu/functions.h), dual numbers (dual.h) or tensors (elementwise/tensor_value.h). docs/kit.md has their errors.

#include <cmath>
#include <type_traits>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/select.h"

// Calls F for each function of one argument, and of two, that comes from the C library on a CPU.
#define CPPCUDA_UNARY_FUNCTIONS(F) \
  F(acos)                          \
  F(asin)                          \
  F(atan)                          \
  F(cbrt)                          \
  F(cos)                           \
  F(cosh)                          \
  F(erf)                           \
  F(erfc)                          \
  F(exp2)                          \
  F(expm1)                         \
  F(log)                           \
  F(log1p)                         \
  F(log2)                          \
  F(sin)                           \
  F(sinh)                          \
  F(tan)
#define CPPCUDA_BINARY_FUNCTIONS(F) \
  F(atan2)                          \
  F(fmod)                           \
  F(hypot)                          \
  F(pow)
// Functions of one argument that the CPU kernels compute themselves.
#define CPPCUDA_OTHER_UNARY_FUNCTIONS(F) F(abs) F(ceil) F(exp) F(floor) F(sqrt) F(tanh) F(trunc)

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Types other than numbers have functions of the same names in their own namespaces.
#define CPPCUDA_FUNCTION(name)      \
  template <class A>                \
  CPPCUDA_HOST_DEVICE A name(A x) { \
    using std::name;                \
    return name(x);                 \
  }
CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
CPPCUDA_OTHER_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION

#define CPPCUDA_FUNCTION(name)           \
  template <class A>                     \
  CPPCUDA_HOST_DEVICE A name(A x, A y) { \
    using std::name;                     \
    return name(x, y);                   \
  }
CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
CPPCUDA_FUNCTION(copysign)
#undef CPPCUDA_FUNCTION

// exp(x) - 1 for x <= 0, which is faster for vectors.
template <class A>
CPPCUDA_HOST_DEVICE A expm1_of_negative(A x) {
  return kit::expm1(x);
}

// Halves to even.
template <class A>
CPPCUDA_HOST_DEVICE A rint(A x) {
  using std::rint;
  return rint(x);
}
template <class A>
CPPCUDA_HOST_DEVICE A round(A x) {
  return kit::rint(x);
}

template <class A>
CPPCUDA_HOST_DEVICE A max(A a, A b) {
  if constexpr (requires { A::max(a, b); }) {
    return A::max(a, b);
  } else {
    return select(a > b, a, select(a <= b, b, a + b));
  }
}
template <class A>
CPPCUDA_HOST_DEVICE A min(A a, A b) {
  return -kit::max<A>(-a, -b);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
