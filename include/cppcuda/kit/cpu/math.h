#pragma once

// clamp, exp, expm1_of_negative, tanh and erf of vectors.

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

#if defined(__AVX2__)
// erf of float32. Around each of eight multiples of 8/15, it is a polynomial that is equal to erf at Chebyshev nodes.
// From 4 on, the result is 1. Instructions look up the factors of the nearest multiple in a register, which may have
// more lanes than there are multiples and then gets the next row, too.
template <bool Fast>
struct ErfConstants {
  static constexpr int terms = 8;
  alignas(64) static constexpr float factor[terms + 1][8] = {
      {0.0F, 0.54929924F, 0.868571997F, 0.9763484F, 0.997447014F, 0.999837577F, 0.99999398F, 0.999999881F},
      {1.12837923F, 0.849028766F, 0.361679912F, 0.0872290358F, 0.0119105661F, 0.000920743041F, 4.02975857e-05F,
       9.98513315e-07F},
      {0.0F, -0.452814519F, -0.385792434F, -0.139566556F, -0.0254090894F, -0.00245531532F, -0.000128960717F,
       -3.72890872e-06F},
      {-0.3761262F, -0.122008793F, 0.153780878F, 0.119794689F, 0.0321673304F, 0.00405807886F, 0.000261668058F,
       8.94581262e-06F},
      {0.0F, 0.183416247F, 0.0466155857F, -0.0493075326F, -0.025850622F, -0.00459229667F, -0.000375089876F,
       -1.5376565e-05F},
      {0.112815231F, -0.00252221664F, -0.0660020187F, -0.00438705506F, 0.0124035487F, 0.00368186552F, 0.000402207137F,
       2.03540385e-05F},
      {0.0F, -0.0471682362F, 0.0102601079F, 0.0153522259F, -0.00173578563F, -0.00204890454F, -0.0003423171F,
       -2.30164551e-05F},
      {-0.026225429F, 0.00762078026F, 0.0121977394F, -0.00582605274F, -0.00181909453F, 0.000665856991F, 0.000208740632F,
       1.87647602e-05F},
  };
};
template <>
struct ErfConstants</*Fast=*/true> {
  static constexpr int terms = 6;
  alignas(64) static constexpr float factor[terms + 1][8] = {
      {0.0F, 0.549298704F, 0.868572116F, 0.976348579F, 0.997447014F, 0.999837518F, 0.99999398F, 0.999999881F},
      {1.12837923F, 0.849028826F, 0.361680061F, 0.0872289687F, 0.0119105456F, 0.00092075055F, 4.02999285e-05F,
       9.9872284e-07F},
      {0.0F, -0.452680171F, -0.38582173F, -0.139610246F, -0.0254041217F, -0.00244948757F, -0.000127989115F,
       -3.66372183e-06F},
      {-0.376084656F, -0.122030526F, 0.153746158F, 0.119811296F, 0.0321724974F, 0.00405618176F, 0.000261074892F,
       8.89258718e-06F},
      {0.0F, 0.178382099F, 0.0477117188F, -0.0476696603F, -0.0260361955F, -0.00481084501F, -0.000411574118F,
       -1.78276823e-05F},
      {0.110482477F, -0.00170852453F, -0.0647005811F, -0.0050089648F, 0.0122096017F, 0.00375292962F, 0.000424464641F,
       2.23534971e-05F},
  };
};

template <bool Fast>
CPPCUDA_INLINE Vec<float, Fast> erf(Vec<float, Fast> x) {
  using V = Vec<float, Fast>;
  using C = ErfConstants<Fast>;
  const V size = abs(x), highest(3.9921875F), integers(0x1p23F);
#if defined(__AVX512F__)
  const V t = _mm512_min_ps(highest.v, size.v);
#else
  const V t = _mm256_min_ps(highest.v, size.v);
#endif
  // Adding 2^23 rounds to an integer, whose bits are the last ones of the sum.
  const V shifted = t * V(15.0F / 8) + integers, from_middle = t - (shifted - integers) * V(8.0F / 15);
  const auto interval = shifted.ints();
  const V square = from_middle * from_middle;
  const auto pair = [&](int k) __attribute__((always_inline)) {
    return V::load(C::factor[k]).permuted(interval) + V::load(C::factor[k + 1]).permuted(interval) * from_middle;
  };
  V sum = pair(C::terms - 2);
#pragma GCC unroll 4
  for (int k = C::terms - 4; k >= 0; k -= 2) sum = sum * square + pair(k);
  return copysign(sum, x);
}
#endif

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
