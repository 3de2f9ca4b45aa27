#pragma once

// Dual numbers: a value and its derivative along a direction. Evaluated on them, a formula gives its own derivative. A
// is what the formula runs on otherwise: a number, a vector (vec.h), a tensor (tensor_value.h) or, for derivatives of
// higher order, a dual number.

#include <cmath>
#include <concepts>
#include <type_traits>

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

  using Mask = decltype(std::declval<A>() < std::declval<A>());
  friend CPPCUDA_HOST_DEVICE Dual select(Mask m, Dual a, Dual b) {
    const A value = select(m, a.value, b.value);
    return a.varies || b.varies ? Dual(value, select(m, a.tangent, b.tangent)) : constant(value);
  }

  friend CPPCUDA_HOST_DEVICE Dual exp(Dual a) {
    using std::exp;
    const A y = exp(a.value);
    return a.with(y, [&] { return y; });
  }
  friend CPPCUDA_HOST_DEVICE Dual tanh(Dual a) {
    using std::tanh;
    const A y = tanh(a.value);
    return a.with(y, [&] { return A(1) - y * y; });
  }
  // As in torch, the derivative at 0 is 0.
  friend CPPCUDA_HOST_DEVICE Dual abs(Dual a) {
    using std::abs;
    const A x = a.value;
    return a.with(abs(x), [&] { return select(x < A(0), A(-1), select(x > A(0), A(1), x - x)); });
  }
};

template <class A>
inline constexpr bool is_dual = false;
template <class A>
inline constexpr bool is_dual<Dual<A>> = true;

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
