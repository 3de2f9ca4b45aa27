#pragma once

// The functions of math/functions.h for vectors. exp, tanh and, with AVX2, erf, sin and cos of float32 are own code,
// here and in math.h.

#include "cppcuda/kit/cpu/function_table.h"
#include "cppcuda/kit/cpu/math.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// Calls a function of the C library for all lanes: that for vectors if there is one, or that for numbers. The compiler
// may leave out a call whose result is not used, such as the value of a function in a loop that needs its derivative,
// or is known from another call. It knows this only of functions of its own types, not of Vec.
template <detail::Function Name, class A, class Values, class... Others>
[[gnu::const, gnu::noinline]] Values call_values(Values x, Others... others) {
  const detail::FunctionTable& table = sizeof(A) == 4 ? detail::float_functions : detail::double_functions;
  constexpr auto index = static_cast<size_t>(Name), isa = static_cast<size_t>(Capability::CPPCUDA_ISA);
  using OfVectors = Values (*)(Values, Others...);
  if (const auto f = reinterpret_cast<OfVectors>(table.of_vector[isa][index])) return f(x, others...);
  const auto f = reinterpret_cast<A (*)(A, decltype(A(others[0]))...)>(table.of_number[index]);
  for (size_t i = 0; i < sizeof(Values) / sizeof(A); ++i) x[i] = f(x[i], others[i]...);
  return x;
}
template <detail::Function Name, class A, bool Fast, class... Others>
CPPCUDA_INLINE Vec<A, Fast> call_function(Vec<A, Fast> x, Others... others) {
  return call_values<Name, A>(x.v, others.v...);
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

#if defined(__AVX2__)
// sin and cos of float32. x = m pi + r with |r| <= pi / 2, where m is an integer n for sin, and n - 1/2 for cos. Both
// functions are (-1)^n sin(r), for which there is a minimax polynomial with a relative error of 6e-9, or 1.1e-6 for 16
// bits. pi has three parts: m times the first is subtracted without an error (fma), and the others are small.
template <detail::Function Name, bool Fast>
CPPCUDA_INLINE Vec<float, Fast> sin_or_cos(Vec<float, Fast> x) {
  using V = Vec<float, Fast>;
  const V size = abs(x), highest(0x1p15F);
#if defined(__AVX512F__)
  const bool is_large = _mm512_cmp_ps_mask(size.v, highest.v, _CMP_NLE_UQ) != 0;
#else
  const bool is_large = _mm256_movemask_ps(_mm256_cmp_ps(size.v, highest.v, _CMP_NLE_UQ)) != 0;
#endif
  if (__builtin_expect(is_large, 0)) return call_function<Name>(x);  // also for infinity and NaN
  // Adding 3 * 2^22 rounds to an integer, whose bits are the last ones of the sum.
  constexpr float shift = Name == detail::Function::cos ? 0.5F : 0, integers = 0x1.8p23F, inverse = 0x1.45f306p-2F;
  const V n = shift == 0 ? fma(x, V(inverse), V(integers)) : fma(x, V(inverse), V(shift)) + V(integers);
  const V m = n - V(integers) - V(shift);
  V r = fma(m, V(0x1.777a5cp-24F), fma(m, V(-0x1.921fb6p1F), x));
  if constexpr (!Fast) r = fma(m, V(0x1.ee59dap-49F), r);
  const V square = r * r;
  V sum = V(-0x1.55511p-3F) + square * (V(0x1.10713p-7F) + square * V(-0x1.84dbc2p-13F));
  if constexpr (!Fast) {
    sum = V(-0x1.55554cp-3F) + square * V(0x1.110ed4p-7F) +
          square * square * (V(-0x1.9f6ffep-13F) + square * V(0x1.5dbde4p-19F));
  }
  const V sine = fma(r * square, sum, r);
  return std::bit_cast<typename V::Values>(sine.ints() ^ (n.ints() << 31));
}
template <bool Fast>
CPPCUDA_INLINE Vec<float, Fast> sin(Vec<float, Fast> x) {
  return sin_or_cos<detail::Function::sin>(x);
}
template <bool Fast>
CPPCUDA_INLINE Vec<float, Fast> cos(Vec<float, Fast> x) {
  return sin_or_cos<detail::Function::cos>(x);
}
#endif

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
