#pragma once

// Formulas of rows (formula.h) on tensors, by torch's operators: all rows at once, each with all its values.

#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>

#include <vector>

#include "cppcuda/kit/elementwise/recorded.h"
#include "cppcuda/kit/formula.h"
#include "cppcuda/kit/math/array.h"
#include "cppcuda/kit/rows/formula.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

struct AllPlaces {};

template <class Value>
struct TensorRowIn {
  const Value& value;

  const Value& operator[](AllPlaces) const { return value; }
};

template <class Value>
struct TensorRowOut {
  Value value;

  void set(AllPlaces, const Value& all) { value = all; }
};

template <class Row>
struct KeptValue {
  const Row& row;
  typename Row::Value value;

  const auto& operator[](AllPlaces) const { return value; }
  auto sum() const {
    return row.sum([&](AllPlaces) { return value; });
  }
};

// Value is a TensorValue, a Dual of it or Recorded. A number for each row has a last dim of size 1.
template <class ValueOf>
class TensorRow {
 public:
  using Value = ValueOf;

  // `like` has the dtype and device of all values.
  TensorRow(c10::SymInt size, Tensor like) : size_(std::move(size)), like_(std::move(like)) {}

  int64_t size() const { return size_.guard_int(__FILE__, __LINE__); }
  static Value number(double x) { return Value(x); }

  template <class F>
  void for_each(F f) const {
    f(AllPlaces());
  }
  template <class F>
  auto sum(F f) const {
    return each(f(AllPlaces()), [&](const Value& v) { return sum_of(v); });
  }
  template <class F>
  auto mean(F f) const {
    const Value count = number(static_cast<double>(size()));
    return each(sum(f), [&](const Value& v) { return v / count; });
  }
  template <class F>
  Value max(F f) const {
    const Value all = f(AllPlaces());
    const TensorValue values = value_of(all);
    if (values.tensor() == nullptr) return all;
    const Tensor t = whole(*values.tensor());
    if (t.sym_size(-1) == 0) return constant(TensorValue(-std::numeric_limits<double>::infinity()));
    const Tensor greatest = t.amax(-1, /*keepdim=*/true), is_greatest = (t == greatest).to(t.scalar_type());
    const TensorValue share(is_greatest / is_greatest.sum(-1, /*keepdim=*/true));
    return with_derivative(TensorValue(greatest), all, share);
  }
  template <class F>
  KeptValue<TensorRow> keep(F f) const {
    return {*this, f(AllPlaces())};
  }

  // `index` is [..., 1].
  Value at(const TensorRowIn<Value>& in, const Tensor& index) const {
    const TensorValue places = is_at(index), all = value_of(in.value);
    return with_derivative(sum_of(all * places), in.value, places);
  }
  Value has(const Tensor& index) const { return constant(number_of(index >= 0)); }
  Value is_at(AllPlaces, const Tensor& index) const { return constant(is_at(index)); }
  Value is_before(AllPlaces, int64_t n) const { return constant(number_of(this->places() < n)); }
  Value rolled(const TensorRowIn<Value>& in, AllPlaces, int64_t n) const {
    const auto roll = [&](const TensorValue& v) {
      return v.tensor() == nullptr ? v : TensorValue(whole(*v.tensor()).roll(-n, -1));
    };
    if constexpr (std::is_same_v<Value, Recorded>) {
      return Recorded::rolled(roll(in.value.value), in.value, n);
    } else {
      return linear(in.value, roll);
    }
  }

 private:
  // f of a value, or of each in an Array.
  template <class F>
  static Value each(const Value& value, F f) {
    return f(value);
  }
  template <int N, class F>
  static Array<Value, N> each(const Array<Value, N>& values, F f) {
    return Array<Value, N>::of([&](int i) { return f(values[i]); });
  }

  static TensorValue value_of(const Value& v) {
    if constexpr (std::is_same_v<Value, TensorValue>) {
      return v;
    } else {
      return v.value;
    }
  }
  static Value constant(const TensorValue& v) {
    if constexpr (std::is_same_v<Value, Dual<TensorValue>>) {
      return Value::constant(v);
    } else {
      return Value(v);
    }
  }
  template <class F>
  static Value linear(const Value& v, F f) {
    if constexpr (std::is_same_v<Value, TensorValue>) {
      return f(v);
    } else {
      return v.varies ? Value(f(v.value), f(v.tangent)) : Value::constant(f(v.value));
    }
  }

  // [..., F]
  Tensor whole(const Tensor& t) const {
    c10::SymDimVector sizes(t.sym_sizes());
    sizes.back() = size_;
    return t.expand_symint(sizes);
  }
  Tensor places() const { return at::arange(size(), like_.options().dtype(at::kLong)); }
  TensorValue number_of(const Tensor& holds) const { return TensorValue(holds.to(like_.scalar_type())); }
  TensorValue is_at(const Tensor& index) const { return number_of(places() == index); }

  TensorValue sum_of(const TensorValue& v) const {
    return v.tensor() == nullptr ? v * TensorValue(static_cast<double>(size()))
                                 : TensorValue(whole(*v.tensor()).sum(-1, /*keepdim=*/true));
  }
  Dual<TensorValue> sum_of(const Dual<TensorValue>& v) const {
    return linear(v, [&](const TensorValue& part) { return sum_of(part); });
  }
  Recorded sum_of(const Recorded& v) const {
    if (v.value.tensor() == nullptr) return Recorded(sum_of(v.value));
    const TensorValue all(whole(*v.value.tensor())), one(1.0);
    return Recorded::step(sum_of(all), Recorded::step(all, v, one), one);
  }

  // A number for each row, which is the sum of the products of the values with `share`.
  Value with_derivative(const TensorValue& value, const Value& all, const TensorValue& share) const {
    if constexpr (std::is_same_v<Value, TensorValue>) {
      return value;
    } else if constexpr (std::is_same_v<Value, Recorded>) {
      return all.value.tensor() == nullptr ? Recorded(value) : Recorded::step(value, all, share);
    } else {
      return all.varies ? Value(value, sum_of(all.tangent * share)) : Value::constant(value);
    }
  }

  c10::SymInt size_;
  Tensor like_;
};

// The formula on the values of the inputs. Those of indices are tensors.
template <class Value, class Math, size_t Inputs>
std::array<Value, Math::outputs> evaluate_rows(const Math& math, const TensorRow<Value>& row,
                                               const std::array<Value, Inputs>& in,
                                               const std::array<Tensor, Inputs>& indices) {
  std::array<TensorRowOut<Value>, Math::outputs> out;
  math(
      row,
      [&](auto input) {
        constexpr int i = decltype(input)::value;
        constexpr OwnSizes own = Math::own[Math::outputs + i];
        if constexpr (own.is_row()) {
          return TensorRowIn<Value>{in[i]};
        } else if constexpr (own.is_index) {
          return indices[i];
        } else {
          return in[i];
        }
      },
      [&](auto output) -> auto& {
        constexpr int o = decltype(output)::value;
        if constexpr (Math::own[o].is_row()) {
          return out[o];
        } else {
          return out[o].value;
        }
      });
  std::array<Value, Math::outputs> result;
  for (size_t o = 0; o < result.size(); ++o) result[o] = out[o].value;
  return result;
}

// The inputs of a formula of rows, of which missing ones are zeros.
template <class Math>
struct RowInputs {
  static constexpr size_t count = Math::inputs;
  std::array<TensorValue, count> values;
  std::array<Tensor, count> indices;
  c10::SymDimVector sizes;  // to which all broadcast, [..., F]
  Tensor like;              // the first tensor

  template <class Tensors>
  explicit RowInputs(const Tensors& tensors) {
    for (size_t i = 0; i < count; ++i) {
      if (!tensors[i].defined()) continue;
      const Tensor t = last_dim(tensors[i], Math::own[Math::outputs + i]);
      sizes = like.defined() ? at::infer_size_symdimvector(sizes, t.sym_sizes()) : c10::SymDimVector(t.sym_sizes());
      if (Math::own[Math::outputs + i].is_index) {
        indices[i] = t.to(at::kLong);
      } else {
        values[i] = TensorValue(in_opmath(t));
        if (!like.defined()) like = *values[i].tensor();
      }
    }
  }

  template <class Value>
  TensorRow<Value> row() const {
    return {sizes.back(), like};
  }

  // A number for each row gets a last dim of size 1.
  static Tensor last_dim(const Tensor& t, const OwnSizes& own) { return own.is_row() ? t : t.unsqueeze(-1); }
};

// The gradients of the inputs of a formula of rows. Undefined tensors are zeros.
template <class Math, class Tensors, class Grads, class Need>
std::array<Tensor, Math::inputs> row_gradients(const Math& math, const Tensors& tensors, const Grads& grads,
                                               const Need& need) {
  const RowInputs<Math> inputs(tensors);
  Record record;
  std::array<Recorded, Math::inputs> values;
  std::vector<size_t> variables;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool varies = need[i] && inputs.values[i].tensor() != nullptr;
    values[i] = varies ? record.variable(inputs.values[i]) : Recorded(inputs.values[i]);
    if (varies) variables.push_back(i);
  }
  const auto results = evaluate_rows(math, inputs.template row<Recorded>(), values, inputs.indices);
  std::vector<Record::Seed> seeds;
  for (size_t o = 0; o < results.size(); ++o) {
    if (!grads[o].defined() || results[o].value.tensor() == nullptr) continue;
    // The result of every row, although the operator adds up those of a tensor that broadcasts.
    c10::SymDimVector sizes(inputs.sizes);
    if (!Math::own[o].is_row()) sizes.back() = 1;
    const Tensor gradient = RowInputs<Math>::last_dim(in_opmath(grads[o]), Math::own[o]).expand_symint(sizes);
    seeds.push_back({&results[o], TensorValue(gradient)});
  }
  const auto found = record.gradients(seeds, variables.size());
  std::array<Tensor, Math::inputs> result;
  for (size_t v = 0; v < variables.size(); ++v) {
    if (found[v].tensor() == nullptr) continue;
    const size_t i = variables[v];
    const Tensor& gradient = *found[v].tensor();
    result[i] = (Math::own[Math::outputs + i].is_row() ? gradient : gradient.squeeze(-1)).to(tensors[i].scalar_type());
  }
  return result;
}

// The tangents of the outputs, which have the sizes and dtypes of `like`; those of outputs that are not defined there
// are left out.
template <class Math, class Tensors, class Tangents, class Outputs>
std::array<Tensor, Math::outputs> row_tangents(const Math& math, const Tensors& tensors, const Tangents& tangents,
                                               const Outputs& like) {
  const RowInputs<Math> inputs(tensors);
  std::array<Dual<TensorValue>, Math::inputs> values;
  for (size_t i = 0; i < values.size(); ++i) {
    const OwnSizes& own = Math::own[Math::outputs + i];
    values[i] =
        tangents[i].defined() && !own.is_index
            ? Dual<TensorValue>(inputs.values[i], TensorValue(RowInputs<Math>::last_dim(in_opmath(tangents[i]), own)))
            : Dual<TensorValue>::constant(inputs.values[i]);
  }
  const auto results = evaluate_rows(math, inputs.template row<Dual<TensorValue>>(), values, inputs.indices);
  std::array<Tensor, Math::outputs> result;
  for (size_t o = 0; o < results.size(); ++o) {
    const Tensor* const tangent = results[o].tangent.tensor();
    if (!like[o].defined() || !results[o].varies || tangent == nullptr) continue;
    c10::SymDimVector sizes(inputs.sizes);
    if (!Math::own[o].is_row()) sizes.back() = 1;
    const Tensor each = tangent->expand_symint(sizes);
    result[o] =
        at::sum_to(Math::own[o].is_row() ? each : each.squeeze(-1), like[o].sym_sizes()).to(like[o].scalar_type());
  }
  return result;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
