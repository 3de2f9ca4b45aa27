#pragma once

// From the strides of tensors to those of their rows.

#include <ATen/core/Tensor.h>

#include "cppcuda/kit/math/rows.h"

namespace cppcuda::kit {

// Strides of the dims that come before the last `own` ones, [N] or [B, N].
inline RowStride row_stride(const at::Tensor& t, int64_t own) {
  return {t.dim() == own + 2 ? t.stride(0) : 0, t.stride(-own - 1)};
}

// The rows of a tensor whose last `own` dims are a row's own. Several batches count as one when every operand steps
// evenly from one to the next.
template <class... Strides>
Rows make_rows(const at::Tensor& t, int64_t own, const Strides&... strides) {
  const int64_t per_batch = t.size(-own - 1);
  const int64_t batches = t.dim() == own + 2 ? t.size(0) : 1;
  const bool even = ((strides.batch == strides.row * per_batch) && ...);
  return {batches * per_batch, even || batches == 1 ? batches * per_batch : per_batch};
}

}  // namespace cppcuda::kit
