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
// erf of float32: [0, 4) has eight intervals, and each a polynomial around its middle, or around 0 in the first one,
// that is equal to erf at Chebyshev nodes. From 4 on, the result is 1. Instructions look up a number of each interval
// in a register. A register may have more lanes than there are intervals, so it gets the next row, too.
template <bool Fast>
struct ErfConstants {
  static constexpr int terms = 8;
  alignas(64) static constexpr float factor[terms + 1][8] = {
      {0.0F, 0.711155653F, 0.92290014F, 0.986671686F, 0.998537302F, 0.999899387F, 0.999995708F, 0.999999881F},
      {1.12837923F, 0.642931044F, 0.236521125F, 0.0527749956F, 0.00714231888F, 0.000586277281F, 2.91890228e-05F,
       8.81431447e-07F},
      {-1.4724759e-06F, -0.482198149F, -0.295651734F, -0.092356205F, -0.0160701573F, -0.00161226746F, -9.48693341e-05F,
       -3.30606963e-06F},
      {-0.376079857F, 0.0267885569F, 0.167535841F, 0.0901573375F, 0.0217245314F, 0.00276038423F, 0.00019581127F,
       7.96999484e-06F},
      {-0.000544045004F, 0.15067564F, -0.00613201689F, -0.0481055342F, -0.0190882571F, -0.00325770909F,
       -0.000286169467F, -1.37854686e-05F},
      {0.115798838F, -0.0532236919F, -0.0471851453F, 0.00661999919F, 0.0106594469F, 0.00275616487F, 0.000313672295F,
       1.83407228e-05F},
      {-0.00786591507F, -0.0265828706F, 0.0205975454F, 0.00904959999F, -0.00277956133F, -0.00166786392F,
       -0.000273757963F, -2.06917848e-05F},
      {-0.0180696715F, 0.0179458465F, 0.003732251F, -0.0059470511F, -0.000715929957F, 0.000636969984F, 0.000173199442F,
       1.70471958e-05F},
  };
};
template <>
struct ErfConstants</*Fast=*/true> {
  static constexpr int terms = 6;
  alignas(64) static constexpr float factor[terms + 1][8] = {
      {0.0F, 0.711155415F, 0.922900259F, 0.986671746F, 0.998537242F, 0.999899387F, 0.999995708F, 0.999999881F},
      {1.12837732F, 0.642931223F, 0.236521155F, 0.0527749509F, 0.00714231376F, 0.000586282113F, 2.91903416e-05F,
       8.81560766e-07F},
      {0.000183025142F, -0.482139707F, -0.295697093F, -0.0923760757F, -0.0160640348F, -0.00160860398F, -9.42690676e-05F,
       -3.26077998e-06F},
      {-0.378942132F, 0.0267490651F, 0.167527661F, 0.0901704207F, 0.0217260998F, 0.00275898352F, 0.000195431101F,
       7.9326328e-06F},
      {0.0143439323F, 0.148182914F, -0.00419963617F, -0.0472572967F, -0.0193490833F, -0.00341405184F, -0.000311814278F,
       -1.57225077e-05F},
      {0.0876137018F, -0.0515403226F, -0.0468354486F, 0.006062245F, 0.0105924159F, 0.00281589874F, 0.000329903531F,
       1.99373771e-05F},
  };
};
alignas(64) inline constexpr float erf_middle[2][8] = {{0.0F, 0.75F, 1.25F, 1.75F, 2.25F, 2.75F, 3.25F, 3.75F}};

template <bool Fast>
CPPCUDA_INLINE Vec<float, Fast> erf(Vec<float, Fast> x) {
  using V = Vec<float, Fast>;
  using C = ErfConstants<Fast>;
  const V size = abs(x), highest(0x1.fffffep1F), t = select(size > highest, highest, size);
  const auto interval = __builtin_convertvector((t * V(2)).v, typename V::Ints);
  const V from_middle = t - V::load(erf_middle[0]).permuted(interval);
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
