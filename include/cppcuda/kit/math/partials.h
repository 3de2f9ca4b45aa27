#pragma once

// Numbers that carry derivatives and know the value of each step of a formula, and its derivatives with respect to its
// arguments, which dual numbers (dual.h) compute. Duals has the derivatives along several directions.

#include "cppcuda/kit/math/dual.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Self has a member `value` of type A, and the functions
//
//   step(value, a, by_a)           the result of a function of a, with its derivative
//   step(value, a, by_a, b, by_b)  that of a function of two
//   either(mask, a, b)             a or b
template <class Self, class A>
struct ByPartials {
  friend CPPCUDA_HOST_DEVICE Self operator-(const Self& a) { return Self::step(-a.value, a, A(-1)); }
  friend CPPCUDA_HOST_DEVICE Self operator+(const Self& a, const Self& b) {
    return Self::step(a.value + b.value, a, A(1), b, A(1));
  }
  friend CPPCUDA_HOST_DEVICE Self operator-(const Self& a, const Self& b) {
    return Self::step(a.value - b.value, a, A(1), b, A(-1));
  }
  friend CPPCUDA_HOST_DEVICE Self operator*(const Self& a, const Self& b) {
    return Self::step(a.value * b.value, a, b.value, b, a.value);
  }
  friend CPPCUDA_HOST_DEVICE Self operator/(const Self& a, const Self& b) {
    const A inverse = A(1) / b.value, quotient = a.value / b.value;
    return Self::step(quotient, a, inverse, b, -(quotient * inverse));
  }
  friend CPPCUDA_HOST_DEVICE Self& operator+=(Self& a, const Self& b) { return a = a + b; }

  friend CPPCUDA_HOST_DEVICE auto operator<(const Self& a, const Self& b) { return a.value < b.value; }
  friend CPPCUDA_HOST_DEVICE auto operator>(const Self& a, const Self& b) { return a.value > b.value; }
  friend CPPCUDA_HOST_DEVICE auto operator<=(const Self& a, const Self& b) { return a.value <= b.value; }
  template <class Mask>
  friend CPPCUDA_HOST_DEVICE Self select(const Mask& m, const Self& a, const Self& b) {
    return Self::either(m, a, b);
  }

#define CPPCUDA_FUNCTION(name, ...)                           \
  friend CPPCUDA_HOST_DEVICE Self name(const Self& a) {       \
    const Dual<A> result = kit::name(Dual<A>(a.value, A(1))); \
    return Self::step(result.value, a, result.tangent);       \
  }
  CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
  CPPCUDA_OTHER_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
  CPPCUDA_FUNCTION(rint)
#undef CPPCUDA_FUNCTION
#define CPPCUDA_FUNCTION(name, ...)                                                     \
  friend CPPCUDA_HOST_DEVICE Self name(const Self& a, const Self& b) {                  \
    const Dual<A> by_a = kit::name(Dual<A>(a.value, A(1)), Dual<A>::constant(b.value)), \
                  by_b = kit::name(Dual<A>::constant(a.value), Dual<A>(b.value, A(1))); \
    return Self::step(by_a.value, a, by_a.tangent, b, by_b.tangent);                    \
  }
  CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
  CPPCUDA_FUNCTION(copysign)
#undef CPPCUDA_FUNCTION
  static CPPCUDA_HOST_DEVICE Self max(const Self& a, const Self& b) {
    const Dual<A> by_a = kit::max(Dual<A>(a.value, A(1)), Dual<A>::constant(b.value)),
                  by_b = kit::max(Dual<A>::constant(a.value), Dual<A>(b.value, A(1)));
    return Self::step(by_a.value, a, by_a.tangent, b, by_b.tangent);
  }
};

// A value and its derivatives along N directions.
template <class A, int N>
struct Duals : ByPartials<Duals<A, N>, A> {
  A value = A(0), tangents[N] = {};
  // Has a bit for each direction along which the value varies. The other tangents are 0; the compiler leaves them out.
  unsigned varies = 0;

  Duals() = default;
  CPPCUDA_HOST_DEVICE explicit Duals(double number) : value(A(number)) {}
  CPPCUDA_HOST_DEVICE static Duals constant(A value) {
    Duals result;
    result.value = value;
    return result;
  }

  // The variable that the direction belongs to.
  CPPCUDA_HOST_DEVICE static Duals variable(A value, int direction) {
    Duals result = constant(value);
    result.tangents[direction] = A(1);
    result.varies = 1U << direction;
    return result;
  }

  CPPCUDA_HOST_DEVICE static Duals step(A value, const Duals& a, A by_a) {
    return each(value, a.varies, [&](int i) CPPCUDA_LAMBDA { return by_a * a.tangents[i]; });
  }
  CPPCUDA_HOST_DEVICE static Duals step(A value, const Duals& a, A by_a, const Duals& b, A by_b) {
    return each(value, a.varies | b.varies, [&](int i) CPPCUDA_LAMBDA {
      if ((a.varies & b.varies) >> i & 1) return detail::multiply_add(by_a, a.tangents[i], A(by_b * b.tangents[i]));
      return (a.varies >> i & 1) ? A(by_a * a.tangents[i]) : A(by_b * b.tangents[i]);
    });
  }
  template <class Mask>
  CPPCUDA_HOST_DEVICE static Duals either(const Mask& m, const Duals& a, const Duals& b) {
    return each(select(m, a.value, b.value), a.varies | b.varies,
                [&](int i) CPPCUDA_LAMBDA { return select(m, a.tangents[i], b.tangents[i]); });
  }

 private:
  template <class F>
  CPPCUDA_HOST_DEVICE static Duals each(A value, unsigned varies, F tangent) {
    Duals result = constant(value);
    result.varies = varies;
    [&]<int... I>(std::integer_sequence<int, I...>) CPPCUDA_LAMBDA {
      ((varies >> I & 1 ? static_cast<void>(result.tangents[I] = tangent(I)) : void()), ...);
    }(std::make_integer_sequence<int, N>());
    return result;
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
