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

struct RowStride {
  int64_t batch;
  int64_t row;

  CPPCUDA_HOST_DEVICE int64_t offset(const Rows& rows, int64_t r) const {
    if (rows.per_batch.value() == rows.count) return r * row;
    const auto [b, n] = rows.per_batch.divide(r);
    return b * batch + n * row;
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
