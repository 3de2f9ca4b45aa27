#pragma once

// Fills the Params of a kernel from the tensors of a call.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "cppcuda/kit/args.h"
#include "cppcuda/kit/math/rows.h"
#include "cppcuda/kit/math/view.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The data of a tensor; null if it is undefined.
template <class T>
const T* data_of(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <class T>
T* mutable_data_of(const Tensor& t) {
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}

// A tensor as loops address it (loop.h). A tensor with a dim less, such as one without a batch, gets a first dim of 1.
// T may be any type of the size of a value.
template <class T, size_t dims>
View<T, dims> view_of(const Tensor& t) {
  View<T, dims> result;
  if (!t.defined()) return result;
  const size_t added = dims - static_cast<size_t>(t.dim());
  TORCH_INTERNAL_ASSERT(added <= 1 && sizeof(T) == t.element_size());
  result.sizes[0] = 1;
  std::copy(t.sizes().begin(), t.sizes().end(), result.sizes + added);
  std::copy(t.strides().begin(), t.strides().end(), result.strides + added);
  if constexpr (std::is_const_v<T>) {
    result.data = static_cast<T*>(t.const_data_ptr());
  } else {
    result.data = static_cast<T*>(t.mutable_data_ptr());
  }
  return result;
}

// The rows of a tensor [N, ...] or [B, N, ...], each of which consists of its last `own` dims.
template <class T>
RowsOf<T> rows_of(const Tensor& t, int64_t own) {
  if (!t.defined() || t.numel() == 0) return {};  // an empty tensor has no data
  const int64_t dims = t.dim();
  const int64_t* const strides = t.strides().data() + dims;  // Tensor::stride takes longer, because it checks the dim
  RowsOf<T> result{.batch = dims == own + 2 ? strides[-own - 2] : 0,
                   .row = strides[-own - 1],
                   .outer = own == 2 ? strides[-2] : 0,
                   .inner = own > 0 ? strides[-1] : 1};
  if constexpr (std::is_void_v<T>) {
    result.data = t.const_data_ptr();
  } else {
    result.data = t.template const_data_ptr<T>();
  }
  return result;
}

// The rows of a tensor and of the operands that a kernel reads with it. Several batches are merged into one if the
// stride from batch to batch is regular in every operand that is not missing.
template <class... Operands>
Rows make_rows(const Tensor& t, int64_t own, const Operands&... operands) {
  const int64_t* const end = t.sizes().end();
  const int64_t per_batch = end[-own - 1];
  const int64_t batches = t.dim() == own + 2 ? end[-own - 2] : 1;
  const bool even = ((!operands.data || operands.batch == operands.row * per_batch) && ...);
  return {batches * per_batch, even || batches == 1 ? batches * per_batch : per_batch};
}

namespace detail {

// The number of dims of a tensor argument after that of the rows, the first letter of Independent or what kernels see
// in place of "..."; -1 if it has none.
template <class TheOp>
constexpr int64_t own_dims(size_t tensor) {
  const Declaration& d = TheOp::declaration;
  const Pattern& pattern = d.arguments[d.tensor_argument(tensor)].pattern;
  if (pattern.has_any_leading()) return static_cast<int64_t>(pattern.rank());
  for (size_t i = 0; d.rows != 0 && i < pattern.rank(); ++i) {
    if (pattern.letter(i) == d.rows) return static_cast<int64_t>(pattern.rank() - i) - 1;
  }
  return -1;
}

}  // namespace detail

// The rows of all tensor arguments.
template <class TheOp>
Rows make_rows(const Args<TheOp>& args) {
  constexpr size_t first = TheOp::declaration.tensor_index(TheOp::declaration.first);
  return [&]<size_t... I>(std::index_sequence<I...>) {
    static_assert(((detail::own_dims<TheOp>(I) >= 0) && ...),
                  "an argument has no dim of the rows that Independent names");
    return make_rows(args.tensor(first), detail::own_dims<TheOp>(first),
                     rows_of<void>(args.tensor(I), detail::own_dims<TheOp>(I))...);
  }(std::make_index_sequence<TheOp::declaration.tensor_count()>());
}

namespace detail {

// What a tensor argument becomes in Params: RowsOf<T> or, if the kernel takes contiguous tensors only, const T*.
template <int64_t Own>
struct ArgumentMember {
  const Tensor& tensor;

  template <class T>
  operator RowsOf<T>() const {  // NOLINT: it initializes a member
    static_assert(Own >= 0, "the argument has no dim of the rows that Independent names");
    return rows_of<T>(tensor, Own);
  }
  template <class T>
  operator const T*() const {  // NOLINT: it initializes a member
    return data_of<T>(tensor);
  }
};

// Initializes a member that was forgotten, so that `fill` finds it.
struct Anything {
  template <class T>
  operator T() const;  // NOLINT: it initializes a member
};

struct OutputMember {
  const Tensor& tensor;

  template <class T>
  operator T*() const {  // NOLINT: it initializes a member
    return mutable_data_of<T>(tensor);
  }
};

}  // namespace detail

// Params whose members are the tensor arguments and the outputs in the order of the declaration, then `more`.
template <class Params, class TheOp, class... More>
Params fill(const Args<TheOp>& args, const Outputs<TheOp>& out, const More&... more) {
  return [&]<size_t... I, size_t... O>(std::index_sequence<I...>, std::index_sequence<O...>) {
    static_assert(
        !requires {
          Params{detail::ArgumentMember<detail::own_dims<TheOp>(I)>{args.tensor(I)}..., detail::OutputMember{out[O]}...,
                 more..., detail::Anything()};
        }, "Params has more members than the arguments, the outputs and what follows them");
    return Params{detail::ArgumentMember<detail::own_dims<TheOp>(I)>{args.tensor(I)}...,
                  detail::OutputMember{out[O]}..., more...};
  }(std::make_index_sequence<TheOp::declaration.tensor_count()>(),
         std::make_index_sequence<TheOp::declaration.outputs.size()>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
