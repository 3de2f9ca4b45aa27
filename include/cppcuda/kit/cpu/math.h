#pragma once

// clamp, exp, expm1_of_negative and tanh of vectors.

#include "cppcuda/kit/cpu/vec.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// x limited to [low, high]; NaN stays NaN.
template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> clamp(Vec<A, Fast> x, Vec<A, Fast> low, Vec<A, Fast> high) {
#if defined(__AVX512F__)
  if constexpr (sizeof(A) == 4) return _mm512_min_ps(high.v, _mm512_max_ps(low.v, x.v));
  if constexpr (sizeof(A) == 8) return _mm512_min_pd(high.v, _mm512_max_pd(low.v, x.v));
#else
  x = select(x < low, low, x);
  return select(x > high, high, x);
#endif
}

// exp, expm1 and tanh: x = n ln 2 + r with |r| <= ln 2 / 2 (W. Cody and W. Waite, "Software manual for the elementary
// functions", 1980: ln 2 in two parts, so that n times the first is exact), and the Taylor series of expm1(r).
template <class A>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr int mantissa = 23, bias = 127, terms = 7, fast_terms = 5;
  static constexpr float ln2_high = 0x1.63p-1F, ln2_low = -0x1.bd0106p-13F;
  static constexpr float round = 0x1.8p23F;  // adding and subtracting it rounds to an integer
  static constexpr float lowest = -104, highest = 89;
};

template <>
struct ExpConstants<double> {
  static constexpr int mantissa = 52, bias = 1023, terms = 13, fast_terms = 13;
  static constexpr double ln2_high = 0x1.62e42fp-1, ln2_low = 0x1.df473de6af279p-26;
  static constexpr double round = 0x1.8p52;
  static constexpr double lowest = -746, highest = 710;
};

// exp(x) = 2^n (1 + rest)
template <class A, bool Fast>
struct Exponential {
  using V = Vec<A, Fast>;
  using C = ExpConstants<A>;
  typename V::Ints n;
  V whole, rest;  // whole is n as a float

  CPPCUDA_INLINE explicit Exponential(V x) {
    x = clamp(x, V(C::lowest), V(C::highest));
    const V shifted = x * V(A(0x1.71547652b82fep0)) + V(C::round);
    whole = shifted - V(C::round);
    n = shifted.ints() - V(C::round).ints();
    const V r = x - whole * V(C::ln2_high) - whole * V(C::ln2_low);
    constexpr int terms = Fast ? C::fast_terms : C::terms;
    // Terms are summed in pairs, which halves the dependency chain.
    const V r2 = r * r;
    const auto pair = [&](int k) { return V(inverse_factorial(k)) + V(inverse_factorial(k + 1)) * r; };
    V series = pair(terms - 1);
#pragma GCC unroll 16
    for (int k = terms - 3; k > 1; k -= 2) series = series * r2 + pair(k);
    rest = r + r2 * series;
  }

  // 2^m, if that is a normal number.
  CPPCUDA_INLINE static V power_of_2(typename V::Ints m) {
    return V(std::bit_cast<typename V::Values>((m + C::bias) << C::mantissa));
  }

  CPPCUDA_INLINE static constexpr A inverse_factorial(int k) {
    double product = 1;
    for (int i = 2; i <= k; ++i) product *= i;
    return static_cast<A>(1 / product);
  }
};

template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> exp(Vec<A, Fast> x) {
  using E = Exponential<A, Fast>;
#if defined(__AVX512F__)
  using V = Vec<A, Fast>;
  if constexpr (Fast && sizeof(A) == 4) {
    // 2^floor(t) times a minimax polynomial for 2^(f - 1/2) on [0, 1], with a relative error of 7.5e-8. x needs no
    // clamping, because f is 0 if t is infinite.
    const V t = x * V(0x1.715476p0F) + V(0.5F), f = _mm512_reduce_ps(t.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const V low = V(0.70710673F) + V(0.49013324F) * f, middle = V(0.16981425F) + V(0.03947517F) * f;
    const V high = V(0.00635642F) + V(0.00132765F) * f, f2 = f * f;
    return _mm512_scalef_ps((low + f2 * (middle + f2 * high)).v, t.v);
  }
  const E e(x);
  const V sum = e.rest + V(1);
  if constexpr (sizeof(A) == 4) return _mm512_scalef_ps(sum.v, e.whole.v);
  if constexpr (sizeof(A) == 8) return _mm512_scalef_pd(sum.v, e.whole.v);
#else
  const E e(x);
  // In two steps, because 2^n may not be a normal number.
  const auto half = e.n >> 1;
  return (E::power_of_2(half) + E::power_of_2(half) * e.rest) * E::power_of_2(e.n - half);
#endif
}

// exp(x) - 1 for x <= 0, accurate near 0.
template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> expm1_of_negative(Vec<A, Fast> x) {
  using E = Exponential<A, Fast>;
  const Vec<A, Fast> lowest(-A(ExpConstants<A>::mantissa + 3));  // below this, expm1(x) is -1
  const E e(select(x < lowest, lowest, x));
  const auto scale = E::power_of_2(e.n);
  return scale * e.rest + (scale - Vec<A, Fast>(1));
}

template <class A, bool Fast>
CPPCUDA_INLINE Vec<A, Fast> tanh(Vec<A, Fast> x) {
  using V = Vec<A, Fast>;
  const V e = expm1_of_negative(V(-2) * abs(x));
  return copysign(e / (e + V(2)), x);
}

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
