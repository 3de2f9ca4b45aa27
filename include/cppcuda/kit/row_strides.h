#pragma once

// Converts the strides of tensors to strides of their rows.

#include <ATen/core/Tensor.h>

#include "cppcuda/kit/math/rows.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The strides of the dims [N] or [B, N] before the last `own` dims.
inline RowStride row_stride(const at::Tensor& t, int64_t own) {
  return {t.dim() == own + 2 ? t.stride(0) : 0, t.stride(-own - 1)};
}

// The rows of a tensor, each of which consists of its last `own` dims. Several batches are merged into one if the
// stride from batch to batch is regular in every operand.
template <class... Strides>
Rows make_rows(const at::Tensor& t, int64_t own, const Strides&... strides) {
  const int64_t per_batch = t.size(-own - 1);
  const int64_t batches = t.dim() == own + 2 ? t.size(0) : 1;
  const bool even = ((strides.batch == strides.row * per_batch) && ...);
  return {batches * per_batch, even || batches == 1 ? batches * per_batch : per_batch};
}

// The data of a tensor; null if it is undefined.
template <class T>
const T* data_of(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <class T>
T* mutable_data_of(const Tensor& t) {
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
