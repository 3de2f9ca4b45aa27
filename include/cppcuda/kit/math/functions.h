#pragma once

// The functions that formulas may use, as kit::sin(x). They are those of <cmath>, with two exceptions: round() rounds
// halves to even, as torch does, and min() and max() are NaN if an argument is. Their arguments are numbers, vectors
// (cpu/functions.h), dual numbers (dual.h) or tensors (elementwise/tensor_value.h). docs/kit.md has their errors.

#include <cmath>
#include <type_traits>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/select.h"

// Calls F(name, error32, error64) for each function of one argument, and of two, that comes from the C library on a
// CPU. The errors are the greatest for vectors of float32 and of float64, in units in the last place, of every float32
// value or 2^32 pairs, and of 10^7 float64 values of any size, measured with glibc 2.36
// (tests/cpp/functions/errors.cpp). docs/kit.md says which of them were measured with fewer values.
#define CPPCUDA_UNARY_FUNCTIONS(F) \
  F(acos, 2.4, 2.0)                \
  F(asin, 3.2, 2.9)                \
  F(atan, 2.6, 2.4)                \
  F(cbrt, 2.9, 2.8)                \
  F(cos, 2.3, 3.6)                 \
  F(cosh, 2.5, 2.0)                \
  F(erf, 2.4, 2.5)                 \
  F(erfc, 1.8, 2.0)                \
  F(exp2, 1.1, 1.7)                \
  F(expm1, 2.4, 2.9)               \
  F(log, 4.0, 1.6)                 \
  F(log1p, 2.0, 2.0)               \
  F(log2, 2.4, 2.0)                \
  F(sin, 2.4, 3.4)                 \
  F(sinh, 2.0, 2.1)                \
  F(tan, 3.9, 3.7)
#define CPPCUDA_BINARY_FUNCTIONS(F) \
  F(atan2, 3.5, 2.4)                \
  F(fmod, 0, 0)                     \
  F(hypot, 1.5, 2.0)                \
  F(pow, 0.7, 1.0)
// Functions of one argument that the CPU kernels compute themselves, as they do erf, sin and cos of float32 with AVX2
// and AVX-512.
#define CPPCUDA_OTHER_UNARY_FUNCTIONS(F) \
  F(abs, 0, 0)                           \
  F(ceil, 0, 0)                          \
  F(exp, 1.1, 1.0)                       \
  F(floor, 0, 0)                         \
  F(sqrt, 0.501, 0.501)                  \
  F(tanh, 2.5, 2.6)                      \
  F(trunc, 0, 0)

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Types other than numbers have functions of the same names in their own namespaces.
#define CPPCUDA_FUNCTION(name, ...) \
  template <class A>                \
  CPPCUDA_HOST_DEVICE A name(A x) { \
    using std::name;                \
    return name(x);                 \
  }
CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
CPPCUDA_OTHER_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION

#define CPPCUDA_FUNCTION(name, ...)      \
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
