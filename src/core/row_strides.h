#pragma once

// From the strides of tensors to those of their rows.

#include <ATen/core/Tensor.h>

#include "core/rows.h"

namespace cppcuda::core {

// Strides of the dims that come before the last `core` ones, [N] or [B, N].
inline RowStride row_stride(const at::Tensor& t, int64_t core) {
  return {t.dim() == core + 2 ? t.stride(0) : 0, t.stride(-core - 1)};
}

// The rows of a tensor whose last `core` dims are a row's own. Several batches count as one when every operand steps
// evenly from one to the next.
template <class... Strides>
Rows make_rows(const at::Tensor& t, int64_t core, const Strides&... strides) {
  const int64_t per_batch = t.size(-core - 1);
  const int64_t batches = t.dim() == core + 2 ? t.size(0) : 1;
  const bool even = ((strides.batch == strides.row * per_batch) && ...);
  return {batches * per_batch, even || batches == 1 ? batches * per_batch : per_batch};
}

}  // namespace cppcuda::core
