#pragma once

// The arguments of the kernels, CPU and CUDA: raw pointers, strides in elements, sizes.

#include <cstdint>

#include "cppcuda/kit/math/rows.h"

namespace cppcuda::ops::trilinear {

using kit::Rows;
using kit::RowStride;

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
  const T* feats;  // null if grad_points is null
  const P* points;
  T* grad_feats;   // contiguous, or null
  P* grad_points;  // contiguous, or null
  Rows rows;
  int64_t features;
  RowStride grad_rows, feats_rows, points_rows;
  int64_t grad_feature, feats_corner, feats_feature, points_coordinate;
};

template <class T, class P>
struct DoubleBackwardParams {
  const T* grad;
  const T* feats;  // null if only grad_feats is requested
  const P* points;
  const T* grad_grad_feats;  // may be null
  const P* grad_grad_points;
  // Contiguous, or null. The gradients of grad, feats and points.
  T *grad_grad, *grad_feats;
  P* grad_points;
  Rows rows;
  int64_t features;
  RowStride grad_rows, feats_rows, points_rows, grad_grad_feats_rows, grad_grad_points_rows;
  int64_t grad_feature, feats_corner, feats_feature, points_coordinate;
  int64_t grad_grad_feats_corner, grad_grad_feats_feature, grad_grad_points_coordinate;
};

}  // namespace cppcuda::ops::trilinear
