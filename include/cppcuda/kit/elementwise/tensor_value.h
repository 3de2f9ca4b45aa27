#pragma once

// A tensor or a number, on which formulas are evaluated by torch's operators, so that derivatives of any order exist.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <utility>
#include <variant>

#include "cppcuda/kit/math/logistic.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

class TensorValue {
 public:
  using Tensor = at::Tensor;

  explicit TensorValue(double number) : value_(number) {}
  explicit TensorValue(Tensor tensor) : value_(std::move(tensor)) {}

  // Null if it is a number.
  const Tensor* tensor() const { return std::get_if<Tensor>(&value_); }
  bool is_number(double number) const {
    const double* const own = std::get_if<double>(&value_);
    return own != nullptr && *own == number;
  }
  Tensor like(const Tensor& other) const {
    return tensor() != nullptr ? *tensor() : at::full_like(other, std::get<double>(value_));
  }

  friend TensorValue operator-(const TensorValue& a) {
    return a.map([](const auto& x) { return -x; });
  }
  friend TensorValue operator+(const TensorValue& a, const TensorValue& b) {
    if (a.is_number(0)) return b;
    if (b.is_number(0)) return a;
    return map(a, b, [](const auto& x, const auto& y) { return x + y; });
  }
  friend TensorValue operator-(const TensorValue& a, const TensorValue& b) {
    return map(a, b, [](const auto& x, const auto& y) { return x - y; });
  }
  friend TensorValue operator*(const TensorValue& a, const TensorValue& b) {
    if (a.is_number(1) || b.is_number(0)) return b;
    if (b.is_number(1) || a.is_number(0)) return a;
    return map(a, b, [](const auto& x, const auto& y) { return x * y; });
  }
  friend TensorValue operator/(const TensorValue& a, const TensorValue& b) {
    return map(a, b, [](const auto& x, const auto& y) { return x / y; });
  }

  // A comparison of a tensor with another or with a number.
  struct Mask {
    Tensor lanes;
    at::ScalarType dtype;
  };
  friend Mask operator<(const TensorValue& a, const TensorValue& b) {
    return compare(a, b, [](const auto& x, const auto& y) { return x < y; });
  }
  friend Mask operator>(const TensorValue& a, const TensorValue& b) {
    return compare(a, b, [](const auto& x, const auto& y) { return x > y; });
  }
  friend TensorValue select(const Mask& m, const TensorValue& a, const TensorValue& b) {
    const auto tensor = [&](const TensorValue& v) {
      return v.tensor() != nullptr ? *v.tensor()
                                   : at::full_like(m.lanes, std::get<double>(v.value_), at::TensorOptions(m.dtype));
    };
    return TensorValue(at::where(m.lanes, tensor(a), tensor(b)));
  }

  friend TensorValue exp(const TensorValue& a) {
    using at::exp, std::exp;
    return a.map([](const auto& x) { return exp(x); });
  }
  friend TensorValue tanh(const TensorValue& a) {
    using at::tanh, std::tanh;
    return a.map([](const auto& x) { return tanh(x); });
  }
  friend TensorValue abs(const TensorValue& a) {
    using at::abs, std::abs;
    return a.map([](const auto& x) { return abs(x); });
  }

 private:
  template <class F>
  TensorValue map(F f) const {
    return std::visit([&](const auto& x) { return TensorValue(f(x)); }, value_);
  }
  template <class F>
  static TensorValue map(const TensorValue& a, const TensorValue& b, F f) {
    return std::visit([&](const auto& x, const auto& y) { return TensorValue(f(x, y)); }, a.value_, b.value_);
  }
  template <class F>
  static Mask compare(const TensorValue& a, const TensorValue& b, F f) {
    const Tensor* const t = a.tensor() != nullptr ? a.tensor() : b.tensor();
    TORCH_INTERNAL_ASSERT(t != nullptr, "a formula compares two numbers");
    const TensorValue lanes = map(a, b, [&](const auto& x, const auto& y) { return f(x, y); });
    return {*lanes.tensor(), t->scalar_type()};
  }

  std::variant<double, Tensor> value_;
};

template <>
struct Logistic<TensorValue> {
  TensorValue value, complement;

  explicit Logistic(const TensorValue& x) : value(at::sigmoid(*x.tensor())), complement(at::sigmoid(-*x.tensor())) {}

  TensorValue slope() const { return value * complement; }
};

template <>
inline TensorValue logistic(TensorValue x) {
  return Logistic<TensorValue>(x).value;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
