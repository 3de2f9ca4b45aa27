#pragma once

// Dual numbers over tensors. Evaluated on them, a formula gives its derivative along a direction. The derivative is
// computed by differentiable operators, so derivatives of any order exist.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "cppcuda/kit/math/logistic.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

class Dual {
 public:
  using Tensor = at::Tensor;
  using Value = std::variant<double, Tensor>;
  using Tangent = std::optional<Value>;  // empty if zero

  // A constant.
  explicit Dual(double number) : value_(number) {}

  explicit Dual(Value value, Tangent tangent = {}) : value_(std::move(value)), tangent_(std::move(tangent)) {}

  const Value& value() const { return value_; }
  const Tangent& tangent() const { return tangent_; }

  friend Dual operator-(const Dual& a) { return Dual(-1) * a; }
  friend Dual operator+(const Dual& a, const Dual& b) {
    return Dual(add(a.value_, b.value_), sum(a.tangent_, b.tangent_));
  }
  friend Dual operator-(const Dual& a, const Dual& b) {
    return Dual(subtract(a.value_, b.value_), sum(a.tangent_, times(b.tangent_, -1.0)));
  }
  friend Dual operator*(const Dual& a, const Dual& b) {
    return Dual(multiply(a.value_, b.value_), sum(times(a.tangent_, b.value_), times(b.tangent_, a.value_)));
  }
  friend Dual operator/(const Dual& a, const Dual& b) {
    const Value quotient = divide(a.value_, b.value_);
    const Tangent numerator = sum(a.tangent_, times(b.tangent_, multiply(-1.0, quotient)));
    return Dual(quotient, times(numerator, divide(1.0, b.value_)));
  }

  friend Dual exp(const Dual& a) {
    const Value y = map(a.value_, [](const auto& x) { return exp_of(x); });
    return Dual(y, times(a.tangent_, y));
  }
  friend Dual tanh(const Dual& a) {
    const Value y = map(a.value_, [](const auto& x) { return tanh_of(x); });
    return Dual(y, times(a.tangent_, subtract(1.0, multiply(y, y))));
  }

  // At 0 the derivative is 1, that of select(a < 0, -a, a). With 0, logistic functions of -|x| would have derivative 0
  // there.
  friend Dual abs(const Dual& a) { return select(a < Dual(0), -a, a); }

  // The result of a comparison with a tensor.
  struct Mask {
    Tensor lanes;
    at::ScalarType dtype;
  };
  friend Mask operator<(const Dual& a, const Dual& b) {
    const Value difference = subtract(a.value_, b.value_);
    const Tensor& t = std::get<Tensor>(difference);
    return {t < 0, t.scalar_type()};
  }
  friend Mask operator>(const Dual& a, const Dual& b) { return b < a; }

  friend Dual select(const Mask& m, const Dual& a, const Dual& b) {
    Tangent tangent;
    if (a.tangent_ || b.tangent_) tangent = where(m, a.tangent_.value_or(0.0), b.tangent_.value_or(0.0));
    return Dual(where(m, a.value_, b.value_), tangent);
  }

 private:
  template <class F>
  static Value map(const Value& a, F f) {
    return std::visit([&](const auto& x) { return Value(f(x)); }, a);
  }
  template <class F>
  static Value map(const Value& a, const Value& b, F f) {
    return std::visit([&](const auto& x, const auto& y) { return Value(f(x, y)); }, a, b);
  }

  static Value add(const Value& a, const Value& b) {
    return map(a, b, [](const auto& x, const auto& y) { return x + y; });
  }
  static Value subtract(const Value& a, const Value& b) {
    return map(a, b, [](const auto& x, const auto& y) { return x - y; });
  }
  static Value multiply(const Value& a, const Value& b) {
    return map(a, b, [](const auto& x, const auto& y) { return x * y; });
  }
  static Value divide(const Value& a, const Value& b) {
    return map(a, b, [](const auto& x, const auto& y) { return x / y; });
  }

  static double exp_of(double x) { return std::exp(x); }
  static Tensor exp_of(const Tensor& x) { return x.exp(); }
  static double tanh_of(double x) { return std::tanh(x); }
  static Tensor tanh_of(const Tensor& x) { return x.tanh(); }

  static Tangent sum(const Tangent& a, const Tangent& b) { return !a ? b : !b ? a : Tangent(add(*a, *b)); }
  static Tangent times(const Tangent& tangent, const Value& factor) {
    return tangent ? Tangent(multiply(*tangent, factor)) : tangent;
  }

  static Value where(const Mask& m, const Value& a, const Value& b) {
    const auto tensor = [&](const Value& v) {
      const double* number = std::get_if<double>(&v);
      return number ? at::full_like(m.lanes, *number, at::TensorOptions(m.dtype)) : std::get<Tensor>(v);
    };
    return at::where(m.lanes, tensor(a), tensor(b));
  }

  Value value_;
  Tangent tangent_;
};

// Its derivative does not suffer from cancellation.
template <>
struct Logistic<Dual> {
  Dual value = Dual(0), complement = Dual(0);

  explicit Logistic(const Dual& x) {
    const at::Tensor& t = std::get<at::Tensor>(x.value());
    const at::Tensor s = at::sigmoid(t), rest = at::sigmoid(-t);
    value = Dual(s);
    complement = Dual(rest);
    if (!x.tangent()) return;
    const at::Tensor tangent = std::visit([&](const auto& t) { return s * rest * t; }, *x.tangent());
    value = Dual(s, tangent);
    complement = Dual(rest, -tangent);
  }

  Dual slope() const { return value * complement; }
};

template <>
inline Dual logistic(Dual x) {
  return Logistic<Dual>(x).value;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
