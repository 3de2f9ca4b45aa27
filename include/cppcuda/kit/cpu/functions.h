#pragma once

// The functions of math/functions.h for vectors. exp, tanh and, with AVX2, erf of float32 are own code (math.h).

#include "cppcuda/kit/cpu/function_table.h"
#include "cppcuda/kit/cpu/math.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// Calls a function of the C library for all lanes: that for vectors if there is one, or that for numbers. The compiler
// may leave out a call whose result is not used, such as the value of a function in a loop that needs its derivative.
template <detail::Function Name, class A, bool Fast, class... Others>
[[gnu::pure, gnu::noinline]] Vec<A, Fast> call_function(Vec<A, Fast> x, Others... others) {
  using V = Vec<A, Fast>;
  const detail::FunctionTable& table = sizeof(A) == 4 ? detail::float_functions : detail::double_functions;
  constexpr auto index = static_cast<size_t>(Name), isa = static_cast<size_t>(Capability::CPPCUDA_ISA);
  using OfVectors = typename V::Values (*)(typename V::Values, typename Others::Values...);
  if (const auto f = reinterpret_cast<OfVectors>(table.of_vector[isa][index])) return f(x.v, others.v...);
  const auto f = reinterpret_cast<A (*)(A, decltype(A(others.v[0]))...)>(table.of_number[index]);
  for (int i = 0; i < V::lanes; ++i) x.v[i] = f(x.v[i], others.v[i]...);
  return x;
}

#define CPPCUDA_FUNCTION(name, ...)                  \
  template <class A, bool Fast>                      \
  CPPCUDA_INLINE Vec<A, Fast> name(Vec<A, Fast> x) { \
    return call_function<detail::Function::name>(x); \
  }
CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION

#define CPPCUDA_FUNCTION(name, ...)                                  \
  template <class A, bool Fast>                                      \
  CPPCUDA_INLINE Vec<A, Fast> name(Vec<A, Fast> x, Vec<A, Fast> y) { \
    return call_function<detail::Function::name>(x, y);              \
  }
CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION

// The nearest integer, with halves to even. Adding and subtracting a power of two rounds to integers; from that power
// on, all numbers are integers.
template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> rint(Vec<A, Fast> x) {
  using V = Vec<A, Fast>;
  const V integer(A(sizeof(A) == 4 ? 0x1p23 : 0x1p52)), size = abs(x);
  const V rounded = size + integer - integer;
  return select(size < integer, copysign(rounded, x), x);
}
template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> floor(Vec<A, Fast> x) {
  using V = Vec<A, Fast>;
  const V rounded = rint(x);
  return select(rounded > x, rounded - V(1), rounded);
}
template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> ceil(Vec<A, Fast> x) {
  return -floor(-x);
}
template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> trunc(Vec<A, Fast> x) {
  return copysign(floor(abs(x)), x);
}

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
