// What the instructions compute. A handler gets the mask of the lanes that execute it.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "interpreter.h"

namespace cppcuda::emulator {
namespace {

[[noreturn]] void unknown(const Instruction& i) { throw Error("unknown instruction: " + i.text); }

// ---- lanes

template <class F, class D, class... S>
inline void loop(uint32_t mask, D* d, const S*... s) {
  if (mask == ~0u) {
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) d[l] = F{}(s[l]...);
  } else {
    for_lanes(mask, [&](int l) { d[l] = F{}(s[l]...); });
  }
}

template <class F, class D, class... S>
void op(Warp& w, const Instruction& i, uint32_t mask) {
  [&]<size_t... K>(std::index_sequence<K...>) {
    loop<F>(mask, w.at<D>(i.dst[0]), const_cast<const S*>(w.at<S>(i.src[K]))...);
  }(std::index_sequence_for<S...>{});
}

template <class F, class S>
uint32_t test(const Warp& w, const Instruction& i, uint32_t mask) {
  const S *a = w.at<S>(i.src[0]), *b = w.at<S>(i.src[1]);
  uint32_t result = 0;
  if (mask == ~0u) {
    for (int l = 0; l < 32; ++l) result |= static_cast<uint32_t>(F{}(a[l], b[l])) << l;
  } else {
    for_lanes(mask, [&](int l) { result |= static_cast<uint32_t>(F{}(a[l], b[l])) << l; });
  }
  return result;
}

// ---- 16-bit floating-point types

float bits_to_float(uint32_t bits) { return std::bit_cast<float>(bits); }

// The float next to x towards 0, with an odd last bit if it is not x: rounding it again to fewer bits rounds x once.
float round_to_odd(double x) {
  float f = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(f) == x) return f;
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if (std::fabs(static_cast<double>(f)) > std::fabs(x)) --bits;
  return bits_to_float(bits | 1);
}

template <bool toward_zero = false>
uint16_t to_half(float x) {
  if (std::isnan(x)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) {  // 2^16
    return static_cast<uint16_t>(sign | (toward_zero && std::isfinite(x) ? 0x7bff : 0x7c00));
  }
  if (magnitude < 0x38800000) {  // 2^-14: a multiple of 2^-24
    const float multiple = std::fabs(x) * 0x1p24f;
    return static_cast<uint16_t>(sign |
                                 static_cast<uint32_t>(toward_zero ? std::trunc(multiple) : std::nearbyint(multiple)));
  }
  const uint32_t half = toward_zero ? 0 : 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (magnitude + half - 0x38000000) >> 13);
}

float from_half(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) return bits_to_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x400) return bits_to_float(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
  return bits_to_float(sign | ((magnitude << 13) + 0x38000000));
}

template <bool toward_zero = false>
uint16_t to_bfloat(float x) {
  if (std::isnan(x)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((toward_zero ? bits : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Half {
  uint16_t bits;
  double value() const { return from_half(bits); }
  static Half of(double x) { return {to_half(round_to_odd(x))}; }
};
struct BFloat {
  uint16_t bits;
  double value() const { return bits_to_float(uint32_t{bits} << 16); }
  static BFloat of(double x) { return {to_bfloat(round_to_odd(x))}; }
};
template <class H>
struct Pair {
  H value[2];
};

template <class F>
struct Widened {
  template <class H, class... Hs>
  H operator()(H a, Hs... b) const {
    return H::of(F{}(a.value(), b.value()...));
  }
  template <class H, class... Hs>
  Pair<H> operator()(Pair<H> a, Hs... b) const {
    return {(*this)(a.value[0], b.value[0]...), (*this)(a.value[1], b.value[1]...)};
  }
};

// ---- float

// What GPUs return for every NaN in float32.
template <class T>
inline T canonical(T x) {
  if constexpr (std::is_same_v<T, float>) return x != x ? bits_to_float(0x7fffffff) : x;
  return x;
}

template <class F>
struct Canonical {
  template <class... T>
  auto operator()(T... x) const {
    return canonical(F{}(x...));
  }
};

inline float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }

// An approximate result, whose relative error is at most `bound`; see Options::approx.
float approximate(double exact, double bound, uint32_t operand) {
  const float rounded = static_cast<float>(exact);
  const int mode = options().approx;
  if (mode == 0 || !std::isfinite(rounded) || rounded == 0) return rounded;
  double error = mode == 2 ? 1 : -1;
  if (mode == 1) {
    uint32_t h = operand * 0x9E3779B1u;
    h ^= h >> 15;
    h *= 0x85EBCA77u;
    h ^= h >> 13;
    error = static_cast<double>(h) / 2147483648.0 - 1;
  }
  // Truncated towards the exact value, so that the rounding adds no error.
  const double off = exact * (1 + error * bound);
  float f = static_cast<float>(off);
  if (std::fabs(static_cast<double>(f) - exact) > std::fabs(off - exact)) f = std::nextafterf(f, rounded);
  return f;
}

enum class Approx { ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh };

template <Approx which, bool ftz>
struct Approximate {
  float operator()(float x) const {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if (ftz) x = flush(x);
    const double d = x;
    float r = 0;
    switch (which) {
      // Integers are exact: libdevice's functions of doubles make powers of two in this way.
      case Approx::ex2:
        r = std::trunc(d) == d ? static_cast<float>(std::exp2(d)) : approximate(std::exp2(d), 0x1p-22, bits);
        break;
      case Approx::lg2:
        r = approximate(std::log2(d), 0x1p-22, bits);
        break;
      case Approx::rcp:
        r = approximate(1 / d, 0x1p-23, bits);
        break;
      case Approx::rsqrt:
        r = approximate(1 / std::sqrt(d), 1.276e-7, bits);
        break;  // 2^-22.9
      case Approx::sqrt:
        r = approximate(std::sqrt(d), 0x1p-23, bits);
        break;
      case Approx::sin:
        r = approximate(std::sin(d), 0x1p-21, bits);
        break;
      case Approx::cos:
        r = approximate(std::cos(d), 0x1p-21, bits);
        break;
      case Approx::tanh:
        r = approximate(std::tanh(d), 0x1p-11, bits);
        break;
    }
    r = canonical(r);
    return ftz ? flush(r) : r;
  }
};

// ---- integers

template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>>;

template <class T>
struct MulHi {
  T operator()(T a, T b) const { return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T))); }
};

struct Shl {
  template <class T>
  T operator()(T a, uint32_t n) const {
    return n >= 8 * sizeof(T) ? T(0) : static_cast<T>(a << n);
  }
};
struct Shr {
  template <class T>
  T operator()(T a, uint32_t n) const {
    if (n >= 8 * sizeof(T)) n = std::is_signed_v<T> ? 8 * sizeof(T) - 1 : 8 * sizeof(T);
    return n == 8 * sizeof(T) ? T(0) : static_cast<T>(a >> n);
  }
};

struct Bfe {
  template <class T>
  T operator()(T a, uint32_t pos, uint32_t len) const {
    pos &= 255;
    len &= 255;
    constexpr uint32_t bits = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    const uint32_t sign_at = std::min(pos + len - 1, bits - 1);
    const bool sign = std::is_signed_v<T> && len > 0 && (static_cast<U>(a) >> sign_at & 1);
    U result = 0;
    for (uint32_t k = 0; k < bits; ++k) {
      const bool bit = k < len && pos + k < bits ? (static_cast<U>(a) >> (pos + k) & 1) : sign;
      result |= static_cast<U>(bit) << k;
    }
    return static_cast<T>(result);
  }
};
struct Bfi {
  template <class T>
  T operator()(T a, T b, uint32_t pos, uint32_t len) const {
    pos &= 255;
    len &= 255;
    for (uint32_t k = 0; k < len && pos + k < 8 * sizeof(T); ++k) {
      b = (b & ~(T(1) << (pos + k))) | (a >> k & 1) << (pos + k);
    }
    return b;
  }
};
struct Prmt {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t s = selector >> (4 * k) & 15;
      uint32_t byte = bytes >> (8 * (s & 7)) & 255;
      if (s & 8) byte = byte & 128 ? 255 : 0;
      result |= byte << (8 * k);
    }
    return result;
  }
};
struct Lop3 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c, uint32_t table) const {
    uint32_t result = 0;
    for (int k = 0; k < 8; ++k) {
      if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    }
    return result;
  }
};

// Calls f.operator()<T>() for the C++ type of an integer (or bit) type.
template <class F>
Handler for_integer(const Type& t, const Instruction& i, F f) {
  if (!t.pair && t.kind == 's') {
    if (t.bits == 16) return f.template operator()<int16_t>();
    if (t.bits == 32) return f.template operator()<int32_t>();
    if (t.bits == 64) return f.template operator()<int64_t>();
  } else if (!t.pair && (t.kind == 'u' || t.kind == 'b')) {
    if (t.bits == 16) return f.template operator()<uint16_t>();
    if (t.bits == 32) return f.template operator()<uint32_t>();
    if (t.bits == 64) return f.template operator()<uint64_t>();
  }
  unknown(i);
}

// The same for all floating-point types.
template <class F, class... S>
Handler float_op(const Type& t, const Instruction& i) {
  if (t.kind == 'f' && t.bits == 32 && !t.pair) return &op<Canonical<F>, float, std::conditional_t<true, float, S>...>;
  if (t.kind == 'f' && t.bits == 64) return &op<F, double, std::conditional_t<true, double, S>...>;
  if (t.kind == 'f' && t.bits == 16 && !t.pair) return &op<Widened<F>, Half, std::conditional_t<true, Half, S>...>;
  if (t.kind == 'f' && t.bits == 16) return &op<Widened<F>, Pair<Half>, std::conditional_t<true, Pair<Half>, S>...>;
  if (t.kind == 'h' && !t.pair) return &op<Widened<F>, BFloat, std::conditional_t<true, BFloat, S>...>;
  if (t.kind == 'h') return &op<Widened<F>, Pair<BFloat>, std::conditional_t<true, Pair<BFloat>, S>...>;
  unknown(i);
}

using Add = decltype([](auto a, auto b) { return a + b; });
using Sub = decltype([](auto a, auto b) { return a - b; });
using Mul = decltype([](auto a, auto b) { return a * b; });
using Div = decltype([](auto a, auto b) { return a / b; });
using Fma = decltype([](auto a, auto b, auto c) { return std::fma(a, b, c); });
using Rcp = decltype([](auto a) { return decltype(a)(1) / a; });
using Sqrt = decltype([](auto a) { return std::sqrt(a); });
using Rsqrt = decltype([](auto a) { return decltype(a)(1) / std::sqrt(a); });
using Min = decltype([](auto a, auto b) { return std::fmin(a, b); });
using Max = decltype([](auto a, auto b) { return std::fmax(a, b); });

// Signs change without other effects on the bits.
template <class T, T sign>
struct Neg {
  T operator()(T a) const { return a ^ sign; }
};
template <class T, T sign>
struct Abs {
  T operator()(T a) const { return a & static_cast<T>(~sign); }
};
template <template <class T, T> class F>
Handler sign_op(const Type& t, const Instruction& i, bool ftz) {
  if (t.kind == 'f' && t.bits == 32) {
    if (ftz) {
      using Bits = F<uint32_t, 0x80000000u>;
      return &op<decltype([](float a) { return std::bit_cast<float>(Bits{}(std::bit_cast<uint32_t>(flush(a)))); }),
                 float, float>;
    }
    return &op<F<uint32_t, 0x80000000u>, uint32_t, uint32_t>;
  }
  if (t.kind == 'f' && t.bits == 64) return &op<F<uint64_t, uint64_t{1} << 63>, uint64_t, uint64_t>;
  if (t.bits == 16 && t.is_float() && !t.pair) return &op<F<uint16_t, uint16_t{0x8000}>, uint16_t, uint16_t>;
  if (t.bits == 16 && t.is_float()) return &op<F<uint32_t, 0x80008000u>, uint32_t, uint32_t>;
  unknown(i);
}

// ---- comparisons

template <class F, class S, int combine, bool two>
void set_predicate(Warp& w, const Instruction& i, uint32_t mask) {
  const uint32_t r = test<F, S>(w, i, mask);
  uint32_t yes = r, no = ~r;
  if constexpr (combine != 0) {
    const uint32_t c = w.predicate(i.src[2]) ^ (i.src[2].negated ? ~0u : 0);
    yes = combine == 1 ? yes & c : combine == 2 ? yes | c : yes ^ c;
    no = combine == 1 ? no & c : combine == 2 ? no | c : no ^ c;
  }
  uint32_t& p = w.predicate(i.dst[0]);
  p = (p & ~mask) | (yes & mask);
  if constexpr (two) {
    uint32_t& q = w.predicate(i.dst[1]);
    q = (q & ~mask) | (no & mask);
  }
}

template <class F, class S>
Handler comparison(const Instruction& i, std::string_view combine) {
  const int c = combine.empty() ? 0 : combine == "and" ? 1 : combine == "or" ? 2 : 3;
  static constexpr Handler one[] = {&set_predicate<F, S, 0, false>, &set_predicate<F, S, 1, false>,
                                    &set_predicate<F, S, 2, false>, &set_predicate<F, S, 3, false>};
  static constexpr Handler both[] = {&set_predicate<F, S, 0, true>, &set_predicate<F, S, 1, true>,
                                     &set_predicate<F, S, 2, true>, &set_predicate<F, S, 3, true>};
  return i.dsts == 2 ? both[c] : one[c];
}

struct HalfFloat {  // converts for comparisons
  Half h;
  operator float() const { return static_cast<float>(h.value()); }
};
struct BFloatFloat {
  BFloat h;
  operator float() const { return static_cast<float>(h.value()); }
};

template <class S>
Handler compare(const Instruction& i, std::string_view c, std::string_view combine) {
  if (c == "eq") return comparison<decltype([](S a, S b) { return a == b; }), S>(i, combine);
  if (c == "lt" || c == "lo") return comparison<decltype([](S a, S b) { return a < b; }), S>(i, combine);
  if (c == "le" || c == "ls") return comparison<decltype([](S a, S b) { return a <= b; }), S>(i, combine);
  if (c == "gt" || c == "hi") return comparison<decltype([](S a, S b) { return a > b; }), S>(i, combine);
  if (c == "ge" || c == "hs") return comparison<decltype([](S a, S b) { return a >= b; }), S>(i, combine);
  if constexpr (std::is_integral_v<S>) {
    if (c == "ne") return comparison<decltype([](S a, S b) { return a != b; }), S>(i, combine);
  } else {  // "ne" is false for NaN
    if (c == "ne") return comparison<decltype([](S a, S b) { return a < b || a > b; }), S>(i, combine);
    if (c == "equ") return comparison<decltype([](S a, S b) { return !(a < b || a > b); }), S>(i, combine);
    if (c == "neu") return comparison<decltype([](S a, S b) { return !(a == b); }), S>(i, combine);
    if (c == "ltu") return comparison<decltype([](S a, S b) { return !(a >= b); }), S>(i, combine);
    if (c == "leu") return comparison<decltype([](S a, S b) { return !(a > b); }), S>(i, combine);
    if (c == "gtu") return comparison<decltype([](S a, S b) { return !(a <= b); }), S>(i, combine);
    if (c == "geu") return comparison<decltype([](S a, S b) { return !(a < b); }), S>(i, combine);
    if (c == "num") return comparison<decltype([](S a, S b) { return a == a && b == b; }), S>(i, combine);
    if (c == "nan") return comparison<decltype([](S a, S b) { return a != a || b != b; }), S>(i, combine);
  }
  unknown(i);
}

Handler choose_setp(const Instruction& i, const Modifiers& parts) {
  std::string_view combine;
  for (size_t k = 2; k < parts.size(); ++k) {
    if (parts[k] == "and" || parts[k] == "or" || parts[k] == "xor") combine = parts[k];
  }
  const Type& t = i.type;
  if (t.kind == 'f' && t.bits == 32) return compare<float>(i, parts[1], combine);
  if (t.kind == 'f' && t.bits == 64) return compare<double>(i, parts[1], combine);
  if (t.kind == 'f' && !t.pair) return compare<HalfFloat>(i, parts[1], combine);
  if (t.kind == 'h' && !t.pair) return compare<BFloatFloat>(i, parts[1], combine);
  return for_integer(t, i, [&]<class T>() { return compare<T>(i, parts[1], combine); });
}

template <class T>
void select(Warp& w, const Instruction& i, uint32_t mask) {
  const T *a = w.at<T>(i.src[0]), *b = w.at<T>(i.src[1]);
  T* const d = w.at<T>(i.dst[0]);
  const uint32_t p = w.predicate(i.src[2]) ^ (i.src[2].negated ? ~0u : 0);
  for_lanes(mask, [&](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
  const uint32_t is_chosen = w.defined[i.src[2].index];
  const uint32_t chosen = ((w.defined[i.src[0].index] & p) | (w.defined[i.src[1].index] & ~p)) & is_chosen;
  w.define(i.dst[0], mask, chosen);
  if ((chosen & mask) != mask) {
    uint32_t d[4];
    for (int h = 0; h < 4; ++h) d[h] = ((w.half(i.src[0], h) & p) | (w.half(i.src[1], h) & ~p)) & is_chosen;
    w.define_halves(i.dst[0], mask, d);
  }
}

template <class F>
void predicates(Warp& w, const Instruction& i, uint32_t mask) {
  const auto value = [&](int k) { return w.predicate(i.src[k]) ^ (i.src[k].negated ? ~0u : 0); };
  uint32_t result;
  if constexpr (std::is_invocable_v<F, uint32_t, uint32_t>) {
    result = F{}(value(0), value(1));
  } else {
    result = F{}(value(0));
  }
  uint32_t& p = w.predicate(i.dst[0]);
  p = (p & ~mask) | (result & mask);
}

// ---- moves

void pack(Warp& w, const Instruction& i, uint32_t mask) {  // {a, b} to one
  for_lanes(mask, [&](int l) {
    uint64_t value = 0;
    for (int k = i.srcs; k-- > 0;) value = value << (8 * i.src[k].width) | w.get(i.src[k], l);
    w.set(i.dst[0], l, value);
  });
}

void unpack(Warp& w, const Instruction& i, uint32_t mask) {
  const int bits = i.type.bits / i.dsts;
  for_lanes(mask, [&](int l) {
    const uint64_t value = w.get(i.src[0], l);
    for (int k = 0; k < i.dsts; ++k) w.set(i.dst[k], l, value >> (k * bits));
  });
}

void cvta(Warp& w, const Instruction& i, uint32_t mask) {
  for_lanes(mask, [&](int l) {
    uint64_t a = w.get(i.src[0], l);
    const uint64_t window = i.space == Space::shared  ? shared_window
                            : i.space == Space::local ? local_window
                            : i.space == Space::param ? param_window
                                                      : 0;
    if (window) a = i.mode == 1 ? a - window : a + window;
    w.set(i.dst[0], l, a);
  });
}

// ---- conversions

enum Rounding { rn, rz, rm, rp };

double round_to_integer(double x, int rounding) {
  switch (rounding) {
    case rn:
      return std::nearbyint(x);
    case rz:
      return std::trunc(x);
    case rm:
      return std::floor(x);
    default:
      return std::ceil(x);
  }
}

double to_double(uint64_t raw, const Type& t) {
  if (t.kind == 'h') return BFloat{static_cast<uint16_t>(raw)}.value();
  if (t.bits == 16) return Half{static_cast<uint16_t>(raw)}.value();
  return t.bits == 32 ? bits_to_float(static_cast<uint32_t>(raw)) : std::bit_cast<double>(raw);
}

__int128 to_integer(uint64_t raw, const Type& t) {
  if (t.bits == 64) return t.kind == 's' ? __int128(static_cast<int64_t>(raw)) : __int128(raw);
  raw &= (uint64_t{1} << t.bits) - 1;
  if (t.kind == 's' && raw >> (t.bits - 1) & 1) return __int128(raw) - (__int128(1) << t.bits);
  return __int128(raw);
}

// i.mode: the rounding; + 4: to an integer. i.mxcsr has it too.
void convert(Warp& w, const Instruction& i, uint32_t mask) {
  const Type &from = i.from, &to = i.type;
  const int rounding = i.mode & 3;
  const bool ftz = i.mxcsr & 0x8040;
  for_lanes(mask, [&](int l) {
    uint64_t raw = w.get(i.src[0], l), result = 0;
    if (from.is_float()) {
      double x = to_double(raw, from);
      if (ftz && from.bits == 32) x = flush(static_cast<float>(x));
      if (to.is_float()) {
        if (i.mode & 4) x = round_to_integer(x, rounding);
        if (i.saturate) x = x >= 0 ? std::min(x, 1.0) : 0;  // NaN becomes 0
        if (to.bits == 64) {
          result = std::bit_cast<uint64_t>(x);
        } else if (to.bits == 32) {
          volatile double exact = x;  // rounded as mxcsr says
          const float f = static_cast<float>(exact);
          result = std::bit_cast<uint32_t>(canonical(f));
        } else if (rounding == rz) {
          const float f = round_to_odd(x);
          result = to.kind == 'h' ? to_bfloat<true>(f) : to_half<true>(f);
        } else {
          result = to.kind == 'h' ? BFloat::of(x).bits : Half::of(x).bits;
        }
      } else {
        x = round_to_integer(x, rounding);
        const double low = to.kind == 's' ? -std::ldexp(1.0, to.bits - 1) : 0,
                     high = std::ldexp(1.0, to.kind == 's' ? to.bits - 1 : to.bits);
        const uint64_t max = to.kind == 's'  ? (uint64_t{1} << (to.bits - 1)) - 1
                             : to.bits == 64 ? ~uint64_t{0}
                                             : (uint64_t{1} << to.bits) - 1;
        result = std::isnan(x)    ? 0
                 : x < low        ? static_cast<uint64_t>(static_cast<int64_t>(low))
                 : x >= high      ? max
                 : to.kind == 's' ? static_cast<uint64_t>(static_cast<int64_t>(x))
                                  : static_cast<uint64_t>(x);
      }
    } else {
      __int128 n = to_integer(raw, from);
      if (to.is_float()) {
        if (to.bits == 64) {
          result = std::bit_cast<uint64_t>(from.kind == 's' ? static_cast<double>(static_cast<int64_t>(n))
                                                            : static_cast<double>(static_cast<uint64_t>(n)));
        } else if (to.bits == 32) {
          volatile int64_t s = static_cast<int64_t>(n);
          volatile uint64_t u = static_cast<uint64_t>(n);
          result = std::bit_cast<uint32_t>(from.kind == 's' ? static_cast<float>(s) : static_cast<float>(u));
        } else {
          result = to.kind == 'h' ? BFloat::of(static_cast<double>(n)).bits : Half::of(static_cast<double>(n)).bits;
        }
      } else {
        if (i.saturate) {
          const __int128 max = (__int128(1) << (to.kind == 's' ? to.bits - 1 : to.bits)) - 1,
                         min = to.kind == 's' ? -max - 1 : 0;
          n = std::clamp(n, min, max);
        }
        result = static_cast<uint64_t>(n);
        if (to.bits < 64) {  // extended, if the register is wider
          result &= (uint64_t{1} << to.bits) - 1;
          if (to.kind == 's' && result >> (to.bits - 1) & 1) result |= ~uint64_t{0} << to.bits;
        }
      }
    }
    w.set(i.dst[0], l, result);
  });
}

void convert_pair(Warp& w, const Instruction& i, uint32_t mask) {  // cvt.rn.f16x2.f32 d, a, b: a is the upper half
  const auto round = [&](float x) -> uint32_t {
    if (i.mode & 8) x = x > 0 || x != x ? x : 0;  // relu
    if ((i.mode & 3) == rz) return i.type.kind == 'h' ? to_bfloat<true>(x) : to_half<true>(x);
    return i.type.kind == 'h' ? to_bfloat(x) : to_half(x);
  };
  for_lanes(mask, [&](int l) {
    w.at<uint32_t>(i.dst[0])[l] = round(w.at<float>(i.src[0])[l]) << 16 | round(w.at<float>(i.src[1])[l]);
  });
}

// ---- memory

// The number of pieces of memory that the lanes access together.
template <unsigned PieceBytes>
uint64_t pieces(uint32_t lanes, const uint64_t* address, unsigned bytes) {
  uint64_t all[64];
  int n = 0;
  bool is_sorted = true;
  for_lanes(lanes, [&](int l) {
    for (uint64_t p = address[l] / PieceBytes; p <= (address[l] + bytes - 1) / PieceBytes; ++p) {
      if (n != 0 && all[n - 1] == p) continue;
      is_sorted = is_sorted && (n == 0 || all[n - 1] < p);
      all[n++] = p;
    }
  });
  if (is_sorted) return static_cast<uint64_t>(n);
  std::sort(all, all + n);
  return static_cast<uint64_t>(std::unique(all, all + n) - all);
}

// A wavefront serves 128 bytes, so 8 lanes take part at once in accesses of 16 bytes, and 16 lanes in those of 8 bytes.
uint64_t wavefronts(uint32_t lanes, const uint64_t* address, unsigned bytes) {
  const unsigned at_once = 128 / std::clamp(bytes, 4u, 16u);
  uint64_t sum = 0;
  for (unsigned first = 0; first < 32; first += at_once) {
    const uint32_t part = at_once == 32 ? lanes : lanes & (((1u << at_once) - 1) << first);
    std::pair<uint64_t, uint64_t> words[128];  // a bank and its word
    int n = 0;
    uint64_t lowest = ~uint64_t{0}, highest = 0;
    for_lanes(part, [&](int l) {
      const uint64_t begin = address[l] / 4, last = (address[l] + bytes - 1) / 4;
      lowest = std::min(lowest, begin);
      highest = std::max(highest, last);
      for (uint64_t word = begin; word <= last; ++word) words[n++] = {word % 32, word};
    });
    if (n == 0) continue;
    if (highest - lowest < 32) {  // no bank has two of these words
      ++sum;
      continue;
    }
    std::sort(words, words + n);
    n = static_cast<int>(std::unique(words, words + n) - words);
    uint64_t most = 0;
    for (int k = 0, begin = 0; k < n; ++k) {
      if (words[k].first != words[begin].first) begin = k;
      most = std::max<uint64_t>(most, static_cast<uint64_t>(k - begin + 1));
    }
    sum += most;
  }
  return sum;
}

// Calls f(lane, memory, defined) for each lane.
template <class F>
void access(Warp& w, const Instruction& i, uint32_t mask, F f) {
  const unsigned bytes = i.count * i.size;
  if (i.base.index >= 0 && (w.defined[i.base.index] & mask) != mask) throw Error("the address is undefined");
  uint64_t address[32];
  uint32_t global = 0, shared = 0;
  for_lanes(mask, [&](int l) {
    w.lane = l;
    const uint64_t a = (i.base.index >= 0 ? w.get(i.base, l) : 0) + static_cast<uint64_t>(i.offset);
    const Place place = resolve(w, i.space, a, bytes, l);
    if ((a & (bytes - 1)) != 0) {
      throw Error("misaligned: " + std::to_string(bytes) + " bytes at " +
                  name_of_memory(place.space, a & ~window_mask));
    }
    if (place.space == Space::global) global |= 1u << l;
    if (place.space == Space::shared) shared |= 1u << l;
    address[l] = place.space == Space::shared ? a & ~window_mask : a;
    if (options().races && (place.space == Space::global || place.space == Space::shared)) {
      check_access(w, i, l, place, bytes);
    }
    f(l, place.memory, place.defined);
  });
  w.lane = -1;
  Counts& c = *w.block->counts;
  if (global && !i.is_constant) {
    const bool loads = i.access == Access::read;
    (loads ? c.load_bytes : c.store_bytes) += uint64_t{bytes} * static_cast<unsigned>(__builtin_popcount(global));
    (loads ? c.load_sectors : c.store_sectors) += pieces<32>(global, address, bytes);
    c.lines += pieces<128>(global, address, bytes);
  }
  if (shared) c.wavefronts += wavefronts(shared, address, bytes);
}

// ---- what kit/cuda/shared_memory.cuh says. Sources: an address and a number of bytes.

uint64_t shared_offset(const Warp& w, const Instruction& i, int lane) { return w.get(i.src[0], lane) - shared_window; }

// When the first thread forgets a part of shared memory it becomes undefined. When every thread has, the next call is
// the first one again.
void forget(Warp& w, const Instruction& i, uint32_t mask) {
  Block& b = *w.block;
  for_lanes(mask, [&](int l) {
    const uint64_t begin = shared_offset(w, i, l), bytes = w.get(i.src[1], l) & 0xffff'ffff;
    if (begin + bytes > b.shared.size()) throw Error("forgets what is not shared memory");
    Forgotten& f = b.forgotten[{begin, bytes}];
    f.asked.resize(b.threads);
    if (++f.asked[w.number * 32 + static_cast<unsigned>(l)] <= f.times) return;
    ++f.times;
    std::fill_n(b.shared.begin() + static_cast<std::ptrdiff_t>(begin), bytes, 0xFF);
    std::fill_n(b.shared_defined.begin() + static_cast<std::ptrdiff_t>(begin), bytes, 0);
  });
}

// The warp accesses no other shared memory from now on.
void slice(Warp& w, const Instruction& i, uint32_t mask) {
  const int lane = __builtin_ctz(mask);
  const uint64_t begin = shared_offset(w, i, lane), end = begin + (w.get(i.src[1], lane) & 0xffff'ffff);
  if (end > w.block->shared.size()) {
    throw Error("the slice of a warp ends at " + std::to_string(end) + " of " + std::to_string(w.block->shared.size()) +
                " bytes of shared memory");
  }
  w.slice[0] = begin;
  w.slice[1] = end;
}

// Whether as many bytes as T has are defined, each of which is 0 or 1.
template <class T>
bool are_defined(const unsigned char* defined) {
  T bytes;
  std::memcpy(&bytes, defined, sizeof(T));
  return bytes == static_cast<T>(0x0101'0101'0101'0101);
}

bool are_defined(const unsigned char* defined, int size) {
  return size == 1   ? *defined == 1
         : size == 2 ? are_defined<uint16_t>(defined)
         : size == 4 ? are_defined<uint32_t>(defined)
                     : are_defined<uint64_t>(defined);
}

uint64_t read(const unsigned char* from, int size, bool is_signed) {
  switch (size) {
    case 1:
      return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(*from))) : *from;
    case 2: {
      uint16_t x;
      std::memcpy(&x, from, 2);
      return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int16_t>(x))) : x;
    }
    case 4: {
      uint32_t x;
      std::memcpy(&x, from, 4);
      return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(x))) : x;
    }
    default: {
      uint64_t x;
      std::memcpy(&x, from, 8);
      return x;
    }
  }
}

void ld(Warp& w, const Instruction& i, uint32_t mask) {
  uint32_t undefined_halves[8][4] = {}, any_undefined = 0;
  // The base may be one of the destinations, so all addresses are read first.
  uint64_t values[8][32];
  access(w, i, mask, [&](int l, const unsigned char* memory, const unsigned char* defined) {
    for (int k = 0; k < i.count; ++k) {
      values[k][l] = read(memory + k * i.size, i.size, i.is_signed);
      if (defined && !are_defined(defined + k * i.size, i.size)) {
        for (int b = 0; b < i.size; ++b) {
          if (defined[k * i.size + b]) continue;
          undefined_halves[k][b / 2] |= 1u << l;
          any_undefined |= 1u << l;
        }
      }
    }
  });
  for (int k = 0; k < i.count; ++k) {
    if (i.dst[k].index == sink) continue;
    for_lanes(mask, [&](int l) { w.set(i.dst[k], l, values[k][l]); });
    w.define(i.dst[k], mask, mask);
    if (any_undefined) {
      uint32_t d[4];
      for (int h = 0; h < 4; ++h) d[h] = ~undefined_halves[k][h];
      w.define_halves(i.dst[k], mask, d);
    }
  }
}

void st(Warp& w, const Instruction& i, uint32_t mask) {
  access(w, i, mask, [&](int l, unsigned char* memory, unsigned char* defined) {
    for (int k = 0; k < i.count; ++k) {
      const uint64_t value = w.get(i.src[k], l);
      std::memcpy(memory + k * i.size, &value, i.size);
      if (w.defined[i.src[k].index] >> l & 1) {
        if (defined) std::memset(defined + k * i.size, 1, i.size);
        continue;
      }
      for (int h = 0; h < (i.size + 1) / 2; ++h) {
        const bool is_defined = w.half(i.src[k], h) >> l & 1;
        if (defined) {
          std::memset(defined + k * i.size + 2 * h, is_defined, std::min<size_t>(i.size, 2));
        } else if (!is_defined) {
          throw Error("stores a value to global memory that depends on undefined memory or registers");
        }
      }
    }
  });
}

void prefetch(Warp& w, const Instruction& i, uint32_t mask) {
  // A prefetch of any address is allowed, but one outside of all arrays would be of no use: it is not an error.
  if (i.base.index >= 0 && (w.defined[i.base.index] & mask) != mask) throw Error("the address is undefined");
}

enum class Atomic { add, exch, cas, min, max, and_, or_, xor_, inc, dec };

uint64_t combine(Atomic a, const Type& t, uint64_t old, uint64_t x, uint64_t y) {
  const auto as_float = [&](auto f) -> uint64_t {
    if (t.pair) {
      uint64_t result = 0;
      for (int h = 0; h < 2; ++h) {
        const double v =
            f(to_double(old >> (16 * h) & 0xffff, {t.kind, 16}), to_double(x >> (16 * h) & 0xffff, {t.kind, 16}));
        result |= uint64_t{t.kind == 'h' ? BFloat::of(v).bits : Half::of(v).bits} << (16 * h);
      }
      return result;
    }
    if (t.bits == 64) return std::bit_cast<uint64_t>(f(std::bit_cast<double>(old), std::bit_cast<double>(x)));
    if (t.bits == 32) {
      return std::bit_cast<uint32_t>(
          f(bits_to_float(static_cast<uint32_t>(old)), bits_to_float(static_cast<uint32_t>(x))));
    }
    const double v = f(to_double(old, t), to_double(x, t));
    return t.kind == 'h' ? BFloat::of(v).bits : Half::of(v).bits;
  };
  switch (a) {
    case Atomic::add:
      return t.is_float() ? as_float([](auto p, auto q) { return p + q; }) : old + x;
    case Atomic::exch:
      return x;
    case Atomic::cas:
      return old == x ? y : old;
    case Atomic::and_:
      return old & x;
    case Atomic::or_:
      return old | x;
    case Atomic::xor_:
      return old ^ x;
    case Atomic::inc:
      return old >= x ? 0 : old + 1;
    case Atomic::dec:
      return old == 0 || old > x ? x : old - 1;
    default:
      break;
  }
  const bool is_min = a == Atomic::min;
  if (t.is_float())
    return is_min ? as_float([](auto p, auto q) { return std::fmin(p, q); })
                  : as_float([](auto p, auto q) { return std::fmax(p, q); });
  return (to_integer(old, t) < to_integer(x, t)) == is_min ? old : x;
}

// Sources: the operands of a vector, then those of the next one (cas).
void atomic(Warp& w, const Instruction& i, uint32_t mask) {
  uint64_t olds[8][32];
  access(w, i, mask, [&](int l, unsigned char* memory, unsigned char* defined) {
    for (int k = 0; k < i.count; ++k) {
      const uint64_t old = read(memory + k * i.size, i.size, false);
      olds[k][l] = old;
      for (int s = k; s < i.srcs; s += i.count) {
        if (!(w.defined[i.src[s].index] >> l & 1)) throw Error("the operand of an atomic is undefined");
      }
      if (defined && !defined[k * i.size]) throw Error("an atomic of undefined shared memory");
      const uint64_t value = combine(static_cast<Atomic>(i.mode), i.type, old, w.get(i.src[k], l),
                                     i.srcs > i.count ? w.get(i.src[i.count + k], l) : 0);
      std::memcpy(memory + k * i.size, &value, i.size);
    }
  });
  for (int k = 0; k < i.dsts; ++k) {
    for_lanes(mask, [&](int l) { w.set(i.dst[k], l, olds[k][l]); });
    w.define(i.dst[k], mask, mask);
  }
}

// ---- warps

void shfl(Warp& w, const Instruction& i, uint32_t mask) {
  uint32_t result[32], in_range = 0, is_defined = 0;
  const uint32_t d = w.defined[i.src[0].index] & w.defined[i.src[1].index];
  for_lanes(mask, [&](int l) {
    const uint32_t b = static_cast<uint32_t>(w.get(i.src[1], l)) & 31, c = static_cast<uint32_t>(w.get(i.src[2], l));
    const int clamp = c & 31, segment = c >> 8 & 31;
    const int max_lane = (l & segment) | (clamp & ~segment), min_lane = l & segment;
    int j = l;
    bool p = false;
    switch (i.mode) {
      case 0:
        j = l - static_cast<int>(b);
        p = j >= max_lane;
        break;  // up
      case 1:
        j = l + static_cast<int>(b);
        p = j <= max_lane;
        break;  // down
      case 2:
        j = l ^ static_cast<int>(b);
        p = j <= max_lane;
        break;  // bfly
      default:
        j = min_lane | (static_cast<int>(b) & ~segment);
        p = j <= max_lane;
        break;  // idx
    }
    if (!p) j = l;
    if (!(mask >> j & 1)) {
      const char* why = !(w.threads >> j & 1) ? ", which the block does not have"
                        : w.done >> j & 1     ? ", which has exited"
                                              : ", which is not in the mask";
      throw Error("lane " + std::to_string(l) + " reads lane " + std::to_string(j) + why);
    }
    result[l] = w.at<uint32_t>(i.src[0])[j];
    in_range |= static_cast<uint32_t>(p) << l;
    is_defined |= (d >> j & d >> l & 1) << l;
  });
  for_lanes(mask, [&](int l) { w.at<uint32_t>(i.dst[0])[l] = result[l]; });
  w.define(i.dst[0], mask, is_defined);
  if (i.dsts > 1) {
    uint32_t& p = w.predicate(i.dst[1]);
    p = (p & ~mask) | (in_range & mask);
    w.define(i.dst[1], mask, mask);
  }
}

void vote(Warp& w, const Instruction& i, uint32_t mask) {
  const uint32_t p = (w.predicate(i.src[0]) ^ (i.src[0].negated ? ~0u : 0)) & mask;
  if (i.mode == 0) {
    for_lanes(mask, [&](int l) { w.at<uint32_t>(i.dst[0])[l] = p; });
  } else {
    const bool result = i.mode == 1 ? p != 0 : i.mode == 2 ? p == mask : p == 0 || p == mask;
    uint32_t& d = w.predicate(i.dst[0]);
    d = (d & ~mask) | (result ? mask : 0);
  }
  w.define(i.dst[0], mask, (w.defined[i.src[0].index] & mask) == mask ? mask : 0);
}

void redux(Warp& w, const Instruction& i, uint32_t mask) {
  uint64_t total = 0;
  bool first = true;
  for_lanes(mask, [&](int l) {
    const uint64_t x = w.get(i.src[0], l);
    total = first ? x : combine(static_cast<Atomic>(i.mode), i.type, total, x, 0);
    first = false;
  });
  for_lanes(mask, [&](int l) { w.set(i.dst[0], l, total); });
  w.define(i.dst[0], mask, (w.defined[i.src[0].index] & mask) == mask ? mask : 0);
}

void match(Warp& w, const Instruction& i, uint32_t mask) {
  for_lanes(mask, [&](int l) {
    uint32_t same = 0;
    for_lanes(mask, [&](int k) { same |= static_cast<uint32_t>(w.get(i.src[0], k) == w.get(i.src[0], l)) << k; });
    w.at<uint32_t>(i.dst[0])[l] = i.mode == 1 && same != mask ? 0 : same;
    if (i.dsts > 1) w.set(i.dst[1], l, same == mask);
  });
  for (int k = 0; k < i.dsts; ++k) w.define(i.dst[k], mask, mask);
}

void active_mask(Warp& w, const Instruction& i, uint32_t mask) {
  for_lanes(mask, [&](int l) { w.at<uint32_t>(i.dst[0])[l] = mask; });
}

void nothing(Warp&, const Instruction&, uint32_t) {}

void sync_warp(Warp& w, const Instruction&, uint32_t mask) { order_warp(w, mask); }

// ---- sums with a carry. The carry is source or destination 1, a predicate.

template <class T, bool reads, bool writes, bool subtract>
void carry(Warp& w, const Instruction& i, uint32_t mask) {
  const T *a = w.at<T>(i.src[0]), *b = w.at<T>(i.src[1]);
  T* const d = w.at<T>(i.dst[0]);
  for_lanes(mask, [&](int l) {
    const unsigned __int128 c = reads ? w.get(i.src[2], l) : 0;
    const unsigned __int128 r =
        subtract ? static_cast<unsigned __int128>(a[l]) - b[l] - c : static_cast<unsigned __int128>(a[l]) + b[l] + c;
    d[l] = static_cast<T>(r);
    if (writes) w.set(i.dst[1], l, static_cast<uint64_t>(r >> (8 * sizeof(T))) & 1);
  });
}

template <class T>
Handler choose_carry(bool reads, bool writes, bool subtract) {
  if (subtract)
    return reads ? (writes ? &carry<T, true, true, true> : &carry<T, true, false, true>) : &carry<T, false, true, true>;
  return reads ? (writes ? &carry<T, true, true, false> : &carry<T, true, false, false>)
               : &carry<T, false, true, false>;
}

}  // namespace

bool parse_type(std::string_view text, Type& type) {
  Type t;
  if (text.starts_with("bf16")) {
    t = {'h', 16, text == "bf16x2"};
    if (text != "bf16" && text != "bf16x2") return false;
  } else if (text == "f16x2") {
    t = {'f', 16, true};
  } else if (text == "pred") {
    t = {'p', 0};
  } else {
    if (text.size() < 2 || std::string_view("busf").find(text[0]) == std::string_view::npos) return false;
    for (const char c : text.substr(1)) {
      if (c < '0' || c > '9') return false;
    }
    t = {text[0], std::stoi(std::string(text.substr(1)))};
    if (t.bits != 8 && t.bits != 16 && t.bits != 32 && t.bits != 64 && t.bits != 128) return false;
  }
  type = t;
  return true;
}

void choose(Instruction& i, const Modifiers& parts) {
  const auto has = [&](std::string_view what) {
    return std::find(parts.begin() + 1, parts.end(), what) != parts.end();
  };
  const std::string_view name = parts[0];
  std::vector<Type> types;
  for (size_t k = 1; k < parts.size(); ++k) {
    if (Type t; parse_type(parts[k], t)) types.push_back(t);
  }
  if (!types.empty()) i.type = types[0];
  const Type& t = i.type;
  const bool ftz = has("ftz");
  i.saturate = has("sat");
  int rounding = rn;
  bool to_integer_value = false;
  for (const auto& [text, r] : {std::pair{"rn", rn}, {"rz", rz}, {"rm", rm}, {"rp", rp}}) {
    if (has(text)) rounding = r;
    if (has(std::string(text) + "i")) {
      rounding = r;
      to_integer_value = true;
    }
  }
  const auto set_mxcsr = [&] {
    constexpr uint32_t modes[] = {0x0000, 0x6000, 0x2000, 0x4000};
    if (rounding != rn || ftz) i.mxcsr = 0x1f80 | modes[rounding] | (ftz ? 0x8040 : 0);
  };
  const auto arithmetic = [&](Handler handler) {
    set_mxcsr();
    i.run = handler;
  };

  if (name == "add" || name == "sub" || name == "addc" || name == "subc") {
    const bool is_carry = name.size() == 4, writes = has("cc"), subtract = name[0] == 's';
    if (is_carry || writes) {
      i.run = t.bits == 32 ? choose_carry<uint32_t>(is_carry, writes, subtract)
                           : choose_carry<uint64_t>(is_carry, writes, subtract);
      return;
    }
    if (t.is_float()) return arithmetic(subtract ? float_op<Sub, int, int>(t, i) : float_op<Add, int, int>(t, i));
    if (i.saturate) unknown(i);
    i.run = for_integer(t, i, [&]<class T>() -> Handler {
      using U = std::make_unsigned_t<T>;
      return subtract ? &op<decltype([](U a, U b) { return static_cast<U>(a - b); }), U, U, U>
                      : &op<decltype([](U a, U b) { return static_cast<U>(a + b); }), U, U, U>;
    });
  } else if (name == "mul" || name == "mad") {
    const bool adds = name == "mad";
    if (t.is_float()) return arithmetic(adds ? float_op<Fma, int, int, int>(t, i) : float_op<Mul, int, int>(t, i));
    if (i.saturate) unknown(i);
    i.run = for_integer(t, i, [&]<class T>() -> Handler {
      using U = std::make_unsigned_t<T>;
      if (has("wide")) {
        if constexpr (sizeof(T) < 8) {
          using W = Wide<T>;
          using UW = std::make_unsigned_t<W>;
          return adds ? Handler(&op<decltype([](T a, T b, UW c) {
                                      return static_cast<UW>(static_cast<UW>(W(a) * W(b)) + c);
                                    }),
                                    UW, T, T, UW>)
                      : Handler(&op<decltype([](T a, T b) { return static_cast<UW>(W(a) * W(b)); }), UW, T, T>);
        }
        unknown(i);
      }
      if (has("hi")) {
        return adds ? Handler(&op<decltype([](T a, T b, U c) {
                                    return static_cast<U>(static_cast<U>(MulHi<T>{}(a, b)) + c);
                                  }),
                                  U, T, T, U>)
                    : Handler(&op<MulHi<T>, T, T, T>);
      }
      using M = std::conditional_t<sizeof(U) == 2, uint32_t, U>;  // no overflow of int
      return adds ? Handler(&op<decltype([](U a, U b, U c) { return static_cast<U>(M(a) * b + c); }), U, U, U, U>)
                  : Handler(&op<decltype([](U a, U b) { return static_cast<U>(M(a) * b); }), U, U, U>);
    });
  } else if (name == "fma") {
    arithmetic(float_op<Fma, int, int, int>(t, i));
  } else if (name == "div" && t.is_float()) {
    if (t.bits == 32 && (has("approx") || has("full"))) {
      set_mxcsr();
      i.run = &op<decltype([](float a, float b) {
                    return canonical(approximate(static_cast<double>(a) / b, 0x1p-22, std::bit_cast<uint32_t>(b)));
                  }),
                  float, float, float>;
    } else {
      arithmetic(float_op<Div, int, int>(t, i));
    }
  } else if (name == "div" || name == "rem") {
    i.run = for_integer(t, i, [&]<class T>() -> Handler {
      using S = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
      return name == "div"
                 ? Handler(&op<decltype([](T a, T b) {
                                 return b == 0 ? static_cast<T>(~T(0)) : static_cast<T>(S(a) / S(b));
                               }),
                               T, T, T>)
                 : Handler(&op<decltype([](T a, T b) { return b == 0 ? a : static_cast<T>(S(a) % S(b)); }), T, T, T>);
    });
  } else if (name == "rcp" || name == "sqrt" || name == "rsqrt" || name == "ex2" || name == "lg2" || name == "sin" ||
             name == "cos" || name == "tanh") {
    const auto approx = [&]<Approx which>() {
      if (t != Type{'f', 32}) unknown(i);
      i.run = ftz ? &op<Approximate<which, true>, float, float> : &op<Approximate<which, false>, float, float>;
    };
    if (!has("approx")) {
      if (name == "rcp") return arithmetic(float_op<Rcp, int>(t, i));
      if (name == "sqrt") return arithmetic(float_op<Sqrt, int>(t, i));
      unknown(i);
    }
    if (t == Type{'f', 64} && (name == "rcp" || name == "rsqrt")) {  // the upper 32 bits only
      using Rcp64 =
          decltype([](double a) { return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / a) >> 32 << 32); });
      using Rsqrt64 = decltype([](double a) {
        return std::bit_cast<double>(std::bit_cast<uint64_t>(1 / std::sqrt(a)) >> 32 << 32);
      });
      i.run = name == "rcp" ? &op<Rcp64, double, double> : &op<Rsqrt64, double, double>;
      return;
    }
    if (name == "rcp")
      approx.operator()<Approx::rcp>();
    else if (name == "sqrt")
      approx.operator()<Approx::sqrt>();
    else if (name == "rsqrt")
      approx.operator()<Approx::rsqrt>();
    else if (name == "ex2")
      approx.operator()<Approx::ex2>();
    else if (name == "lg2")
      approx.operator()<Approx::lg2>();
    else if (name == "sin")
      approx.operator()<Approx::sin>();
    else if (name == "cos")
      approx.operator()<Approx::cos>();
    else
      approx.operator()<Approx::tanh>();
  } else if (name == "neg" || name == "abs") {
    if (t.is_float()) {
      i.run = name == "neg" ? sign_op<Neg>(t, i, ftz) : sign_op<Abs>(t, i, ftz);
    } else {
      i.run = for_integer(t, i, [&]<class T>() -> Handler {
        using U = std::make_unsigned_t<T>;
        return name == "neg"
                   ? Handler(&op<decltype([](U a) { return static_cast<U>(U(0) - a); }), U, U>)
                   : Handler(&op<decltype([](T a) { return static_cast<U>(a < 0 ? U(0) - U(a) : U(a)); }), U, T>);
      });
    }
  } else if (name == "copysign") {  // the sign of a, the magnitude of b
    using Copy32 = decltype([](uint32_t a, uint32_t b) { return (a & 0x80000000u) | (b & 0x7fffffffu); });
    using Copy64 = decltype([](uint64_t a, uint64_t b) { return (a >> 63 << 63) | (b << 1 >> 1); });
    i.run = t == Type{'f', 32} ? &op<Copy32, uint32_t, uint32_t, uint32_t> : &op<Copy64, uint64_t, uint64_t, uint64_t>;
  } else if (name == "min" || name == "max") {
    if (has("NaN") || has("xorsign") || has("relu")) unknown(i);
    if (t.is_float()) return arithmetic(name == "min" ? float_op<Min, int, int>(t, i) : float_op<Max, int, int>(t, i));
    i.run = for_integer(t, i, [&]<class T>() -> Handler {
      return name == "min" ? Handler(&op<decltype([](T a, T b) { return a < b ? a : b; }), T, T, T>)
                           : Handler(&op<decltype([](T a, T b) { return a > b ? a : b; }), T, T, T>);
    });
  } else if ((name == "and" || name == "or" || name == "xor" || name == "not") && t.kind == 'p') {
    i.run = name == "and"   ? &predicates<decltype([](uint32_t a, uint32_t b) { return a & b; })>
            : name == "or"  ? &predicates<decltype([](uint32_t a, uint32_t b) { return a | b; })>
            : name == "xor" ? &predicates<decltype([](uint32_t a, uint32_t b) { return a ^ b; })>
                            : &predicates<decltype([](uint32_t a) { return ~a; })>;
  } else if (name == "and" || name == "or" || name == "xor" || name == "not" || name == "cnot") {
    i.taint = name == "and" ? Taint::bits_and : name == "not" ? Taint::move : name == "cnot" ? Taint::all : Taint::bits;
    i.run = for_integer(t, i, [&]<class T>() -> Handler {
      using U = std::make_unsigned_t<T>;
      if (name == "and") return &op<decltype([](U a, U b) { return static_cast<U>(a & b); }), U, U, U>;
      if (name == "or") return &op<decltype([](U a, U b) { return static_cast<U>(a | b); }), U, U, U>;
      if (name == "xor") return &op<decltype([](U a, U b) { return static_cast<U>(a ^ b); }), U, U, U>;
      if (name == "not") return &op<decltype([](U a) { return static_cast<U>(~a); }), U, U>;
      return &op<decltype([](U a) { return static_cast<U>(a == 0); }), U, U>;
    });
  } else if (name == "shl" || name == "shr") {
    i.taint = name == "shl" ? Taint::shift_left : Taint::shift_right;
    i.from = t;  // the sign, for taint_halves
    i.run = for_integer(t, i, [&]<class T>() -> Handler {
      return name == "shl" ? Handler(&op<Shl, T, T, uint32_t>) : Handler(&op<Shr, T, T, uint32_t>);
    });
  } else if (name == "shf") {
    const bool wrap = has("wrap"), left = has("l");
    using L = decltype([](uint32_t a, uint32_t b, uint32_t n) {
      n &= 31;
      return n ? b << n | a >> (32 - n) : b;
    });
    using R = decltype([](uint32_t a, uint32_t b, uint32_t n) {
      n &= 31;
      return n ? b << (32 - n) | a >> n : a;
    });
    using Lc = decltype([](uint32_t a, uint32_t b, uint32_t n) {
      return n >= 32 ? a : n ? b << n | a >> (32 - n) : b;
    });
    using Rc = decltype([](uint32_t a, uint32_t b, uint32_t n) {
      return n >= 32 ? b : n ? b << (32 - n) | a >> n : a;
    });
    using U = uint32_t;
    i.run =
        wrap ? (left ? &op<L, U, U, U, U> : &op<R, U, U, U, U>) : (left ? &op<Lc, U, U, U, U> : &op<Rc, U, U, U, U>);
  } else if (name == "bfe") {
    i.run = for_integer(t, i, [&]<class T>() -> Handler { return &op<Bfe, T, T, uint32_t, uint32_t>; });
  } else if (name == "bfi") {
    i.run = for_integer(t, i, [&]<class T>() -> Handler { return &op<Bfi, T, T, T, uint32_t, uint32_t>; });
  } else if (name == "bmsk" && has("clamp")) {
    using U = uint32_t;
    i.run = &op<decltype([](U first, U bits) {
                  const uint64_t end = std::min<uint64_t>(uint64_t{first} + bits, 32);
                  return first >= 32 ? 0 : static_cast<U>((uint64_t{1} << end) - (uint64_t{1} << first));
                }),
                U, U, U>;
  } else if (name == "prmt" && t == Type{'b', 32} && parts.size() == 2) {
    i.run = &op<Prmt, uint32_t, uint32_t, uint32_t, uint32_t>;
  } else if (name == "lop3" && parts.size() == 2) {
    i.run = &op<Lop3, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;
  } else if (name == "clz" || name == "popc" || name == "brev" || name == "bfind") {
    i.run = for_integer(t, i, [&]<class T>() -> Handler {
      using U = std::make_unsigned_t<T>;
      if constexpr (sizeof(T) >= 4) {
        if (name == "clz")
          return &op<decltype([](U a) { return static_cast<uint32_t>(std::countl_zero(a)); }), uint32_t, U>;
        if (name == "popc")
          return &op<decltype([](U a) { return static_cast<uint32_t>(std::popcount(a)); }), uint32_t, U>;
        if (name == "brev") {
          return &op<decltype([](U a) {
                       U r = 0;
                       for (size_t k = 0; k < 8 * sizeof(U); ++k) r |= (a >> k & 1) << (8 * sizeof(U) - 1 - k);
                       return r;
                     }),
                     U, U>;
        }
        if (std::is_unsigned_v<T> && !has("shiftamt")) {
          return &op<decltype([](U a) {
                       return a == 0 ? ~0u : static_cast<uint32_t>(8 * sizeof(U) - 1 - std::countl_zero(a));
                     }),
                     uint32_t, U>;
        }
      }
      unknown(i);
    });
  } else if (name == "setp") {
    set_mxcsr();
    i.run = choose_setp(i, parts);
  } else if (name == "selp") {
    i.own_taint = true;
    i.run = t.bits == 16 ? &select<uint16_t> : t.bits == 32 ? &select<uint32_t> : &select<uint64_t>;
    if (t.bits < 16 || t.bits > 64) unknown(i);
  } else if (name == "mov") {
    i.taint = Taint::move;
    if (i.srcs > 1) {
      i.run = &pack;
      i.taint = Taint::pack;
    } else if (i.dsts > 1) {
      i.run = &unpack;
      i.taint = Taint::unpack;
    } else if (t.kind == 'p') {
      i.run = &predicates<decltype([](uint32_t a) { return a; })>;
    } else if (i.dst[0].width != i.src[0].width || i.dst[0].width * 8 != t.bits) {
      throw Error("mov between registers of different sizes: " + i.text);
    } else {
      using Same = decltype([](auto a) { return a; });
      i.run = t.bits == 16   ? &op<Same, uint16_t, uint16_t>
              : t.bits == 32 ? &op<Same, uint32_t, uint32_t>
                             : &op<Same, uint64_t, uint64_t>;
    }
  } else if (name == "cvta") {
    i.mode = has("to");
    i.run = &cvta;
  } else if (name == "cvt") {
    if (types.size() != 2 || has("rs") || has("satfinite") || has("rna")) unknown(i);
    i.from = types[1];
    i.mode = rounding | (to_integer_value ? 4 : 0) | (has("relu") ? 8 : 0);
    set_mxcsr();
    using U32 = uint32_t;
    const Type &d = types[0], &s = types[1];
    if (!d.is_float() && !s.is_float() && s.kind == 'u' && s.bits >= 16) i.taint = Taint::move;
    const unsigned dw = i.dst[0].width, sw = i.src[0].width;
    if (d.pair) {
      if (i.srcs != 2 || s != Type{'f', 32} || i.saturate || rounding > rz) unknown(i);
      i.run = &convert_pair;
    } else if (has("relu") || s.pair) {
      unknown(i);
    } else if (d == Type{'f', 32} && s == Type{'f', 16} && !i.saturate && sw == 2) {
      i.run = &op<decltype([](uint16_t h) { return canonical(from_half(h)); }), float, uint16_t>;
    } else if (d == Type{'f', 16} && s == Type{'f', 32} && rounding == rn && !ftz && !i.saturate && dw == 2) {
      i.run = &op<decltype([](float x) { return to_half(x); }), uint16_t, float>;
    } else if (d == Type{'h', 16} && s == Type{'f', 32} && rounding == rn && !ftz && !i.saturate && dw == 2) {
      i.run = &op<decltype([](float x) { return to_bfloat(x); }), uint16_t, float>;
    } else if (d.bits == 64 && s == Type{'u', 32} && !d.is_float() && sw == 4) {
      i.run = &op<decltype([](U32 x) { return uint64_t{x}; }), uint64_t, U32>;
    } else if (d.bits == 64 && s == Type{'s', 32} && !d.is_float() && sw == 4) {
      i.run = &op<decltype([](int32_t x) { return int64_t{x}; }), int64_t, int32_t>;
    } else if (d.bits == 32 && !d.is_float() && s.bits == 64 && !s.is_float() && !i.saturate && dw == 4) {
      i.run = &op<decltype([](uint64_t x) { return static_cast<U32>(x); }), U32, uint64_t>;
    } else {
      i.run = &convert;
    }
    if (i.run == &convert || i.run == &convert_pair) return;  // have saturated
  } else if (name == "ld" || name == "ldu") {
    i.size = static_cast<uint8_t>(t.bits / 8);
    i.is_signed = t.kind == 's';
    i.own_taint = true;
    i.run = &ld;
    if (t.bits > 64 || i.dsts != i.count) unknown(i);
  } else if (name == "st") {
    i.size = static_cast<uint8_t>(t.bits / 8);
    i.access = Access::write;
    i.run = &st;
    if (t.bits > 64 || i.srcs != i.count) unknown(i);
  } else if (name == "prefetch" || name == "prefetchu") {
    i.run = &prefetch;
  } else if (name == "atom" || name == "red") {
    static constexpr std::string_view ops[] = {"add", "exch", "cas", "min", "max", "and", "or", "xor", "inc", "dec"};
    i.mode = -1;
    for (int k = 0; k < 10; ++k) {
      if (has(ops[k])) i.mode = k;
    }
    if (i.mode < 0 || types.size() != 1) unknown(i);
    i.size = static_cast<uint8_t>((t.pair ? 2 : 1) * t.bits / 8);
    i.own_taint = true;
    i.access = Access::atomic;
    i.run = &atomic;
  } else if (name == "bra") {
    i.kind = Kind::branch;
  } else if (name == "ret" || name == "exit") {
    i.kind = Kind::exit;
  } else if (name == "trap" || name == "call") {
    i.kind = Kind::trap;
  } else if (name == "bar" && has("warp")) {
    i.kind = Kind::warp_sync;
    i.run = &sync_warp;
  } else if ((name == "bar" || name == "barrier") && (has("sync") || has("red"))) {
    i.kind = Kind::barrier;
    i.mode = name == "bar" || has("aligned");
    if (has("red")) i.reduction = has("and") ? '&' : has("or") ? '|' : '+';
  } else if (name == "shfl" && has("sync")) {
    i.kind = Kind::warp_sync;
    i.mode = has("up") ? 0 : has("down") ? 1 : has("bfly") ? 2 : 3;
    i.run = &shfl;
  } else if (name == "vote" && has("sync")) {
    i.kind = Kind::warp_sync;
    i.mode = has("ballot") ? 0 : has("any") ? 1 : has("all") ? 2 : 3;
    i.run = &vote;
  } else if (name == "match" && has("sync")) {
    i.kind = Kind::warp_sync;
    i.mode = has("all");
    i.run = &match;
  } else if (name == "redux" && has("sync")) {
    i.kind = Kind::warp_sync;
    i.mode = static_cast<int>(has("add")   ? Atomic::add
                              : has("min") ? Atomic::min
                              : has("max") ? Atomic::max
                              : has("and") ? Atomic::and_
                              : has("or")  ? Atomic::or_
                                           : Atomic::xor_);
    i.run = &redux;
  } else if (name == "forget") {
    i.run = &forget;
  } else if (name == "slice") {
    i.run = &slice;
  } else if (name == "activemask") {
    i.run = &active_mask;
  } else if (name == "membar" || name == "fence" || name == "nanosleep" || name == "griddepcontrol") {
    i.run = &nothing;
  } else {
    unknown(i);
  }
  if (i.saturate && i.run) {
    // Handlers of float32 without .sat; the loop of run.cpp calls saturate after them.
    if (t != Type{'f', 32}) unknown(i);
  }
}

void taint_halves(Warp& w, const Instruction& i, uint32_t mask) {
  uint32_t result[8][4] = {};
  const Ref &a = i.src[0], &b = i.src[1];
  const int n = (i.dst[0].width + 1) / 2, of_a = (a.width + 1) / 2;
  switch (i.taint) {
    case Taint::move:  // zeros above a narrower source
      for (int h = 0; h < n; ++h) result[0][h] = h < of_a ? w.half(a, h) : ~0u;
      break;
    case Taint::pack: {
      int h = 0;
      for (int k = 0; k < i.srcs; ++k) {
        for (int part = 0; part < (i.src[k].width + 1) / 2; ++part) result[0][h++ & 3] = w.half(i.src[k], part);
      }
      break;
    }
    case Taint::unpack: {
      int h = 0;
      for (int k = 0; k < i.dsts; ++k) {
        for (int part = 0; part < of_a / i.dsts; ++part) result[k][part] = w.half(a, h++ & 3);
      }
      break;
    }
    case Taint::bits:
    case Taint::bits_and:
      for (int h = 0; h < n; ++h) {
        const uint32_t da = w.half(a, h), db = w.half(b, h);
        result[0][h] = da & db;
        if (i.taint != Taint::bits_and) continue;
        for_lanes(mask & ~result[0][h], [&](int l) {  // 0 and anything
          const bool zero = (da >> l & 1 && (w.get(a, l) >> (16 * h) & 0xffff) == 0) ||
                            (db >> l & 1 && (w.get(b, l) >> (16 * h) & 0xffff) == 0);
          if (zero) result[0][h] |= 1u << l;
        });
      }
      break;
    case Taint::shift_left:
    case Taint::shift_right:
      for_lanes(mask & w.defined[b.index], [&](int l) {
        const auto by = static_cast<int>(std::min<uint64_t>(w.get(b, l), 64));
        for (int h = 0; h < n; ++h) {
          // The lowest and the highest half that its bits come from.
          const int low = i.taint == Taint::shift_left ? 16 * h - by : 16 * h + by, high = low + 15;
          bool is_defined = true;
          for (int from = 0; from < n; ++from) {
            if (16 * from <= high && 16 * from + 15 >= low) is_defined &= w.half(a, from) >> l & 1;
          }
          if (i.from.kind == 's' && high >= 16 * n) is_defined &= w.half(a, n - 1) >> l & 1;
          if (is_defined) result[0][h] |= 1u << l;
        }
      });
      break;
    default:
      break;
  }
  for (int k = 0; k < i.dsts; ++k) w.define_halves(i.dst[k], mask, result[k]);
}

void saturate(Warp& w, const Instruction& i, uint32_t mask) {
  if (i.type.kind != 'f' || i.type.bits != 32) unknown(i);
  float* const d = w.at<float>(i.dst[0]);
  for_lanes(mask, [&](int l) { d[l] = d[l] >= 0 ? std::min(d[l], 1.0f) : 0; });
}

}  // namespace cppcuda::emulator
