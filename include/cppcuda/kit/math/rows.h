#pragma once

// Rows of [N, ...] or [B, N, ...] as a kernel addresses them. Batches may have any stride, 0 included.

#include <cstdint>

#include "cppcuda/kit/math/divide.h"
#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The rows of [B, N, ...] are numbered 0 .. B * N - 1; per_batch is N, or B * N if all batches count as one.
struct Rows {
  int64_t count;
  Divisor per_batch;
};

// A tensor whose rows a kernel reads, with any strides: those of an expanded tensor are 0. A missing tensor is null.
template <class T>
struct RowsOf {
  const T* data = nullptr;
  int64_t batch = 0, row = 0;    // strides from batch to batch and from row to row
  int64_t outer = 0, inner = 1;  // strides of the last two dims of a row; only rows of two dims have an outer one

  CPPCUDA_HOST_DEVICE const T* at(int64_t b, int64_t n) const { return data + b * batch + n * row; }

  CPPCUDA_HOST_DEVICE const T* at(const Rows& rows, int64_t r) const { return data + offset(rows, r); }

  CPPCUDA_HOST_DEVICE int64_t offset(const Rows& rows, int64_t r) const {
    if (rows.per_batch.value() == rows.count) return r * row;
    const auto [b, n] = rows.per_batch.divide(r);
    return b * batch + n * row;
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
