#pragma once

// Elementwise functions (math.h) on tensors, by torch's operators. Values are in the type of sums, and rounded once.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/stack.h>

#include <array>
#include <vector>

#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/elementwise/tensor_value.h"
#include "cppcuda/kit/formula.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

inline TensorValue value_of(const Tensor& t) {
  return t.defined() ? TensorValue(in_opmath(t)) : TensorValue(0.0);  // missing tensors are zeros
}

// What becomes of values for the elements to which an operator's own tensors broadcast.
template <size_t N>
struct Rounding {
  std::array<Tensor, N> own;

  Tensor operator()(const TensorValue& value) const { return each(value).to(own[0].scalar_type()); }

  // The gradient of tensor number i, a sum if that broadcasts.
  Tensor gradient(const TensorValue& value, size_t i) const {
    if constexpr (N == 1) return (*this)(value);
    return at::sum_to(each(value), own[i].sym_sizes()).to(own[i].scalar_type());
  }

 private:
  Tensor each(const TensorValue& value) const {
    const Tensor values = value.like(in_opmath(own[0]));
    if constexpr (N == 1) return values;
    c10::SymDimVector sizes(own[0].sym_sizes());
    for (size_t i = 1; i < N; ++i) sizes = at::infer_size_symdimvector(sizes, own[i].sym_sizes());
    return values.expand_symint(sizes);
  }
};

// The values of a tensor of points, which are its last dims, one by one.
inline void append_values(std::vector<TensorValue>& values, const Tensor& t, const OwnSizes& own) {
  if (!t.defined()) return values.resize(values.size() + own.count());  // zeros
  const Tensor whole = in_opmath(t);
  for (int i = 0; i < own.sizes[0]; ++i) {
    for (int j = 0; j < own.sizes[1]; ++j) {
      const Tensor row = own.rank == 2 ? whole.select(-2, i) : whole;
      values.emplace_back(own.rank == 0 ? row : row.select(-1, own.rank == 2 ? j : i));
    }
  }
}

// The inverse: a tensor from the values for the points to which all tensors broadcast, summed to the sizes of `like`.
inline Tensor from_values(const TensorValue* values, const OwnSizes& own, const Tensor& point,
                          c10::SymIntArrayRef sizes, at::ScalarType dtype) {
  std::vector<Tensor> each;
  for (int v = 0; v < own.count(); ++v) each.push_back(values[v].like(point).expand_symint(point.sym_sizes()));
  c10::SymDimVector whole(point.sym_sizes());
  whole.append(own.sizes, own.sizes + own.rank);
  const Tensor all = own.rank == 0 ? each[0] : at::stack(each, -1).reshape_symint(whole);
  return at::sum_to(all, sizes).to(dtype);
}

// The operator _decompose_<name>: a forward or backward operator as a composition of torch's, for compilers that
// fuse these (cppcuda/_decompose.py).
template <class TheOp, class Math, class Type = typename TheOp::Type>
struct Decomposition;

template <class TheOp, class Math, class R, class... Args>
struct Decomposition<TheOp, Math, R(Args...)> {
  static void define(torch::Library& library) {
    library.def((std::string("_decompose_") + TheOp::torch_schema).c_str(), TORCH_FN(run));
  }

  static R run(Args... args) {
    const auto in = tensor_arguments(args...);
    const auto math = elementwise_math_of<Math>(args...);
    constexpr bool is_backward = Math::inputs > Math::tensors;  // then `grad` is the first tensor
    return [&]<size_t... I, size_t... Own>(std::index_sequence<I...>, std::index_sequence<Own...>) {
      const Rounding<Math::tensors> rounding{{in[is_backward + Own]...}};
      const auto found = math(value_of(in[I])...);
      if constexpr (is_backward) {
        std::array<Tensor, Math::outputs> result;
        for (size_t o = 0; o < result.size(); ++o) {
          if (is_requested(o, args...)) result[o] = rounding.gradient(found.value[o], o);
        }
        return from_array<R>(std::move(result));
      } else {
        return rounding(found.value[0]);
      }
    }(std::make_index_sequence<Math::inputs>(), std::make_index_sequence<Math::tensors>());
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
