#pragma once

// Dual numbers: a value and its derivative along a direction. Evaluated on them, a formula gives its own derivative. A
// is what the formula runs on otherwise: a number, a vector (vec.h), a tensor (tensor_value.h) or, for derivatives of
// higher order, a dual number.

#include <cmath>
#include <concepts>
#include <type_traits>

#include "cppcuda/kit/math/functions.h"
#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/select.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

template <class A>
concept has_fma = !std::is_floating_point_v<A> && requires(A a) {
  { fma(a, a, a) } -> std::same_as<A>;
};

// a * b + c, fused where the type can do it. In a sum of two products the compiler may fuse either product or none, so
// that the bits of a value would depend on the loop that it is in.
template <class A>
CPPCUDA_HOST_DEVICE A multiply_add(A a, A b, A c) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_floating_point_v<A>) return std::fma(a, b, c);
#endif
  if constexpr (has_fma<A>) {
    return fma(a, b, c);
  } else {
    return a * b + c;
  }
}

}  // namespace detail

template <class A>
struct Dual {
  A value = A(0), tangent = A(0);
  // Whether the value depends on the variable. If not, the tangent is 0, and the compiler, which knows it, leaves out
  // the products with it.
  bool varies = false;

  Dual() = default;
  CPPCUDA_HOST_DEVICE explicit Dual(double number) : value(A(number)) {}
  CPPCUDA_HOST_DEVICE Dual(A value_, A tangent_) : value(value_), tangent(tangent_), varies(true) {}
  CPPCUDA_HOST_DEVICE static Dual constant(A value) {
    Dual result;
    result.value = value;
    return result;
  }

  // The result of a function of this number; slope() computes its derivative.
  template <class F>
  CPPCUDA_HOST_DEVICE Dual with(A result, F slope) const {
    return varies ? Dual(result, slope() * tangent) : constant(result);
  }

  friend CPPCUDA_HOST_DEVICE Dual operator-(Dual a) {
    return a.varies ? Dual(-a.value, -a.tangent) : constant(-a.value);
  }
  friend CPPCUDA_HOST_DEVICE Dual operator+(Dual a, Dual b) {
    const A sum = a.value + b.value;
    if (a.varies && b.varies) return Dual(sum, a.tangent + b.tangent);
    return a.varies ? Dual(sum, a.tangent) : b.varies ? Dual(sum, b.tangent) : constant(sum);
  }
  friend CPPCUDA_HOST_DEVICE Dual operator-(Dual a, Dual b) {
    const A difference = a.value - b.value;
    if (a.varies && b.varies) return Dual(difference, a.tangent - b.tangent);
    return a.varies ? Dual(difference, a.tangent) : b.varies ? Dual(difference, -b.tangent) : constant(difference);
  }
  friend CPPCUDA_HOST_DEVICE Dual operator*(Dual a, Dual b) {
    const A product = a.value * b.value;
    if (a.varies && b.varies) {
      return Dual(product, detail::multiply_add(a.value, b.tangent, A(a.tangent * b.value)));
    }
    return a.varies   ? Dual(product, a.tangent * b.value)
           : b.varies ? Dual(product, a.value * b.tangent)
                      : constant(product);
  }
  friend CPPCUDA_HOST_DEVICE Dual operator/(Dual a, Dual b) {
    const A quotient = a.value / b.value;
    if (a.varies && b.varies) return Dual(quotient, (a.tangent - quotient * b.tangent) / b.value);
    return a.varies   ? Dual(quotient, a.tangent / b.value)
           : b.varies ? Dual(quotient, -(quotient * b.tangent) / b.value)
                      : constant(quotient);
  }

  friend CPPCUDA_HOST_DEVICE auto operator<(Dual a, Dual b) { return a.value < b.value; }
  friend CPPCUDA_HOST_DEVICE auto operator>(Dual a, Dual b) { return a.value > b.value; }
  friend CPPCUDA_HOST_DEVICE auto operator<=(Dual a, Dual b) { return a.value <= b.value; }

  using Mask = decltype(std::declval<A>() < std::declval<A>());
  friend CPPCUDA_HOST_DEVICE Dual select(Mask m, Dual a, Dual b) {
    const A value = select(m, a.value, b.value);
    return a.varies || b.varies ? Dual(value, select(m, a.tangent, b.tangent)) : constant(value);
  }

  // At a kink, the derivatives are those of torch: abs has 0 at 0, and max and min take the mean of both. If one is
  // NaN, they have the derivative 1 with respect to each.
  friend CPPCUDA_HOST_DEVICE Dual abs(Dual a) {
    const A x = a.value;
    return a.with(kit::abs(x), [&]() CPPCUDA_LAMBDA { return sign(x); });
  }
  static CPPCUDA_HOST_DEVICE Dual max(Dual a, Dual b) {
    const A value = kit::max(a.value, b.value);
    if (!a.varies && !b.varies) return constant(value);
    const A sum = a.tangent + b.tangent, otherwise = select(a.value <= b.value, sum / A(2), sum);
    return Dual(value, select(a.value > b.value, a.tangent, select(a.value < b.value, b.tangent, otherwise)));
  }
  friend CPPCUDA_HOST_DEVICE Dual ceil(Dual a) { return constant(kit::ceil(a.value)); }
  friend CPPCUDA_HOST_DEVICE Dual floor(Dual a) { return constant(kit::floor(a.value)); }
  friend CPPCUDA_HOST_DEVICE Dual rint(Dual a) { return constant(kit::rint(a.value)); }
  friend CPPCUDA_HOST_DEVICE Dual trunc(Dual a) { return constant(kit::trunc(a.value)); }

  friend CPPCUDA_HOST_DEVICE Dual exp(Dual a) {
    const A y = kit::exp(a.value);
    return a.with(y, [&]() CPPCUDA_LAMBDA { return y; });
  }
  friend CPPCUDA_HOST_DEVICE Dual exp2(Dual a) {
    const A y = kit::exp2(a.value);
    return a.with(y, [&]() CPPCUDA_LAMBDA { return A(ln_2) * y; });
  }
  friend CPPCUDA_HOST_DEVICE Dual expm1(Dual a) {
    return a.with(kit::expm1(a.value), [&]() CPPCUDA_LAMBDA { return kit::exp(a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual log(Dual a) {
    return a.with(kit::log(a.value), [&]() CPPCUDA_LAMBDA { return A(1) / a.value; });
  }
  friend CPPCUDA_HOST_DEVICE Dual log2(Dual a) {
    return a.with(kit::log2(a.value), [&]() CPPCUDA_LAMBDA { return A(1 / ln_2) / a.value; });
  }
  friend CPPCUDA_HOST_DEVICE Dual log1p(Dual a) {
    return a.with(kit::log1p(a.value), [&]() CPPCUDA_LAMBDA { return A(1) / (A(1) + a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual sqrt(Dual a) {
    const A y = kit::sqrt(a.value);
    return a.with(y, [&]() CPPCUDA_LAMBDA { return A(0.5) / y; });
  }
  friend CPPCUDA_HOST_DEVICE Dual cbrt(Dual a) {
    const A y = kit::cbrt(a.value);
    return a.with(y, [&]() CPPCUDA_LAMBDA { return A(1.0 / 3) / (y * y); });
  }

  friend CPPCUDA_HOST_DEVICE Dual sin(Dual a) {
    return a.with(kit::sin(a.value), [&]() CPPCUDA_LAMBDA { return kit::cos(a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual cos(Dual a) {
    return a.with(kit::cos(a.value), [&]() CPPCUDA_LAMBDA { return -kit::sin(a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual tan(Dual a) {
    const A y = kit::tan(a.value);
    return a.with(y, [&]() CPPCUDA_LAMBDA { return A(1) + y * y; });
  }
  friend CPPCUDA_HOST_DEVICE Dual asin(Dual a) {
    return a.with(kit::asin(a.value), [&]() CPPCUDA_LAMBDA { return A(1) / kit::sqrt(A(1) - a.value * a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual acos(Dual a) {
    return a.with(kit::acos(a.value), [&]() CPPCUDA_LAMBDA { return A(-1) / kit::sqrt(A(1) - a.value * a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual atan(Dual a) {
    return a.with(kit::atan(a.value), [&]() CPPCUDA_LAMBDA { return A(1) / (A(1) + a.value * a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual sinh(Dual a) {
    return a.with(kit::sinh(a.value), [&]() CPPCUDA_LAMBDA { return kit::cosh(a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual cosh(Dual a) {
    return a.with(kit::cosh(a.value), [&]() CPPCUDA_LAMBDA { return kit::sinh(a.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual tanh(Dual a) {
    const A y = kit::tanh(a.value);
    return a.with(y, [&]() CPPCUDA_LAMBDA { return A(1) - y * y; });
  }
  friend CPPCUDA_HOST_DEVICE Dual erf(Dual a) {
    return a.with(kit::erf(a.value),
                  [&]() CPPCUDA_LAMBDA { return A(two_over_sqrt_pi) * kit::exp(-(a.value * a.value)); });
  }
  friend CPPCUDA_HOST_DEVICE Dual erfc(Dual a) {
    return a.with(kit::erfc(a.value),
                  [&]() CPPCUDA_LAMBDA { return A(-two_over_sqrt_pi) * kit::exp(-(a.value * a.value)); });
  }

  friend CPPCUDA_HOST_DEVICE Dual atan2(Dual y, Dual x) {
    const A square = y.value * y.value + x.value * x.value;
    const auto slope = [&](A side) { return select(is_zero(square), A(0), side / square); };  // as in torch, 0 at 0
    return of(
        kit::atan2(y.value, x.value), y, [&]() CPPCUDA_LAMBDA { return slope(x.value); }, x,
        [&]() CPPCUDA_LAMBDA { return slope(-y.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual hypot(Dual a, Dual b) {
    const A length = kit::hypot(a.value, b.value);
    return of(
        length, a, [&]() CPPCUDA_LAMBDA { return a.value / length; }, b,
        [&]() CPPCUDA_LAMBDA { return b.value / length; });
  }
  friend CPPCUDA_HOST_DEVICE Dual fmod(Dual a, Dual b) {
    return of(
        kit::fmod(a.value, b.value), a, [&]() CPPCUDA_LAMBDA { return A(1); }, b,
        [&]() CPPCUDA_LAMBDA { return -kit::trunc(a.value / b.value); });
  }
  friend CPPCUDA_HOST_DEVICE Dual copysign(Dual a, Dual b) {
    const A value = kit::copysign(a.value, b.value);
    return a.with(value, [&]() CPPCUDA_LAMBDA { return sign(a.value) * sign(value); });
  }
  // As in torch, the derivatives of 0^0 are 0, and so is that of 0^n with respect to a positive n. A power of a
  // negative number has no derivative with respect to the exponent, NaN, which counts only where the exponent varies.
  friend CPPCUDA_HOST_DEVICE Dual pow(Dual a, Dual b) {
    const A x = a.value, n = b.value, y = kit::pow(x, n);
    const auto by_base = [&]() CPPCUDA_LAMBDA {
      const A slope = n * kit::pow(x, n - A(1));
      return select(is_zero(x), select(is_zero(n), A(0), slope), slope);
    };
    const auto by_exponent = [&]() CPPCUDA_LAMBDA {
      const A slope = y * kit::log(x);
      return select(is_zero(x), select(n < A(0), slope, A(0)), slope);
    };
    if (!b.varies) return a.with(y, by_base);
    const A along = zero_where_zero(b.tangent, A(0), A(by_exponent() * b.tangent));
    return Dual(y, a.varies ? detail::multiply_add(by_base(), a.tangent, along) : along);
  }

  CPPCUDA_HOST_DEVICE Dual& operator+=(Dual b) { return *this = *this + b; }

 private:
  static constexpr double ln_2 = 0x1.62e42fefa39efp-1, two_over_sqrt_pi = 0x1.20dd750429b6dp0;

  // The result of a function of two numbers, with its derivatives.
  template <class F, class G>
  static CPPCUDA_HOST_DEVICE Dual of(A result, Dual a, F slope_a, Dual b, G slope_b) {
    if (a.varies && b.varies) {
      return Dual(result, detail::multiply_add(slope_a(), a.tangent, A(slope_b() * b.tangent)));
    }
    return a.varies ? Dual(result, slope_a() * a.tangent) : b.with(result, slope_b);
  }

  // 0 at 0, and NaN of NaN.
  static CPPCUDA_HOST_DEVICE A sign(A x) { return select(x < A(0), A(-1), select(x > A(0), A(1), x - x)); }
  template <class T>
  static CPPCUDA_HOST_DEVICE auto is_zero(T x) {
    return kit::abs(x) <= T(0);
  }

  // `zero` where a tangent and its own tangents are 0, and `other` elsewhere.
  template <class T>
  static CPPCUDA_HOST_DEVICE A zero_where_zero(T tangent, A zero, A other) {
    if constexpr (requires { tangent.tangent; }) {
      return zero_where_zero(tangent.value, zero_where_zero(tangent.tangent, zero, other), other);
    } else {
      return select(is_zero(tangent), zero, other);
    }
  }
};

template <class A>
inline constexpr bool is_dual = false;
template <class A>
inline constexpr bool is_dual<Dual<A>> = true;

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
