#pragma once

// A tensor or a number, on which formulas are evaluated by torch's operators, so that derivatives of any order exist.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <utility>
#include <variant>

#include "cppcuda/kit/math/logistic.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail::torch_functions {

using namespace at;  // NOLINT: names of functions that are called with this namespace

inline Tensor cbrt(const Tensor& x) { return x.sign() * x.abs().pow(1.0 / 3); }

}  // namespace detail::torch_functions

class TensorValue {
 public:
  using Tensor = at::Tensor;

  explicit TensorValue(double number = 0) : value_(number) {}
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
  // For a number and a tensor, ATen's operators - and / change a tensor in place, which compilers would have to undo.
  friend TensorValue operator-(const TensorValue& a, const TensorValue& b) {
    if (a.tensor() == nullptr && b.tensor() != nullptr) {
      return TensorValue(at::rsub(*b.tensor(), std::get<double>(a.value_)));
    }
    return map(a, b, [](const auto& x, const auto& y) { return x - y; });
  }
  friend TensorValue operator*(const TensorValue& a, const TensorValue& b) {
    if (a.is_number(1) || b.is_number(0)) return b;
    if (b.is_number(1) || a.is_number(0)) return a;
    return map(a, b, [](const auto& x, const auto& y) { return x * y; });
  }
  friend TensorValue operator/(const TensorValue& a, const TensorValue& b) {
    const auto divide = [](const auto& x, const auto& y) { return x / y; };
    return a.tensor() == nullptr ? map_tensors(a, b, divide, divide) : map(a, b, divide);
  }

  // A comparison. That of two numbers has no tensor.
  struct Mask {
    Tensor lanes;
    at::ScalarType dtype;
    bool of_numbers;
  };
  friend Mask operator<(const TensorValue& a, const TensorValue& b) {
    return compare(a, b, [](const auto& x, const auto& y) { return x < y; });
  }
  friend Mask operator<=(const TensorValue& a, const TensorValue& b) {
    return compare(a, b, [](const auto& x, const auto& y) { return x <= y; });
  }
  friend Mask operator>(const TensorValue& a, const TensorValue& b) {
    return compare(a, b, [](const auto& x, const auto& y) { return x > y; });
  }
  friend TensorValue select(const Mask& m, const TensorValue& a, const TensorValue& b) {
    if (!m.lanes.defined()) return m.of_numbers ? a : b;
    const auto tensor = [&](const TensorValue& v) {
      return v.tensor() != nullptr ? *v.tensor()
                                   : at::full_like(m.lanes, std::get<double>(v.value_), at::TensorOptions(m.dtype));
    };
    return TensorValue(at::where(m.lanes, tensor(a), tensor(b)));
  }

#define CPPCUDA_FUNCTION(name, ...)                                                    \
  friend TensorValue name(const TensorValue& a) {                                      \
    return a.map_one([](const Tensor& x) { return detail::torch_functions::name(x); }, \
                     [](double x) { return std::name(x); });                           \
  }
  CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
  CPPCUDA_OTHER_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION
  friend TensorValue rint(const TensorValue& a) {
    return a.map_one([](const Tensor& x) { return at::round(x); }, [](double x) { return std::rint(x); });
  }

#define CPPCUDA_FUNCTION(name, ...)                                            \
  friend TensorValue name(const TensorValue& a, const TensorValue& b) {        \
    return map_tensors(                                                        \
        a, b, [](const Tensor& x, const Tensor& y) { return at::name(x, y); }, \
        [](double x, double y) { return std::name(x, y); });                   \
  }
  CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
  CPPCUDA_FUNCTION(copysign)
#undef CPPCUDA_FUNCTION
  static TensorValue max(const TensorValue& a, const TensorValue& b) {
    return map_tensors(
        a, b, [](const Tensor& x, const Tensor& y) { return at::maximum(x, y); },
        [](double x, double y) { return kit::max(x, y); });
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
  // f of a tensor, or g of a number.
  template <class F, class G>
  TensorValue map_one(F f, G g) const {
    return tensor() != nullptr ? TensorValue(f(*tensor())) : TensorValue(g(std::get<double>(value_)));
  }
  // f of two tensors, where a number is a tensor without dims, or g of two numbers.
  template <class F, class G>
  static TensorValue map_tensors(const TensorValue& a, const TensorValue& b, F f, G g) {
    const Tensor* const like = a.tensor() != nullptr ? a.tensor() : b.tensor();
    if (like == nullptr) return TensorValue(g(std::get<double>(a.value_), std::get<double>(b.value_)));
    const auto tensor = [&](const TensorValue& v) {
      return v.tensor() != nullptr ? *v.tensor() : at::full({}, std::get<double>(v.value_), like->options());
    };
    return TensorValue(f(tensor(a), tensor(b)));
  }
  template <class F>
  static Mask compare(const TensorValue& a, const TensorValue& b, F f) {
    const Tensor* const t = a.tensor() != nullptr ? a.tensor() : b.tensor();
    if (t == nullptr) return {{}, at::kDouble, f(std::get<double>(a.value_), std::get<double>(b.value_))};
    const TensorValue lanes = map(a, b, [&](const auto& x, const auto& y) { return f(x, y); });
    return {*lanes.tensor(), t->scalar_type(), false};
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
template <>
inline TensorValue softplus(TensorValue x) {
  return TensorValue(-at::log_sigmoid(-*x.tensor()));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
