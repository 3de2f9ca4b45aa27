#pragma once

// What a kernel gets, on CPU and on CUDA: raw pointers, strides in elements, sizes.

#include <c10/macros/Macros.h>

#include <cstdint>

namespace cppcuda::ops::trilinear {

// The rows of [B, N, ...] are numbered 0 .. B * N - 1; per_batch is N.
struct Rows {
  int64_t count;
  int64_t per_batch;
};

struct RowStride {
  int64_t batch;
  int64_t row;

  C10_HOST_DEVICE int64_t offset(const Rows& rows, int64_t r) const {
    // One batch is the usual case, and a 64-bit division is slow on a GPU.
    return rows.per_batch == rows.count ? r * row : r / rows.per_batch * batch + r % rows.per_batch * row;
  }
};

template <class T, class P>
struct ForwardParams {
  const T* feats;
  const P* points;
  T* out;  // contiguous
  Rows rows;
  int64_t features;
  RowStride feats_rows, points_rows;
  int64_t feats_corner, feats_feature, points_coordinate;
};

template <class T, class P>
struct BackwardParams {
  const T* grad;
  const T* feats;  // null when grad_points is
  const P* points;
  T* grad_feats;   // contiguous, or null
  P* grad_points;  // contiguous, or null
  Rows rows;
  int64_t features;
  RowStride grad_rows, feats_rows, points_rows;
  int64_t grad_feature, feats_corner, feats_feature, points_coordinate;
};

}  // namespace cppcuda::ops::trilinear
