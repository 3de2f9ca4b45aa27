#pragma once

// The arguments of the kernels, CPU and CUDA: raw pointers, strides in elements, sizes.

#include <cstdint>

#include "cppcuda/kit/math/rows.h"

namespace cppcuda::ops::trilinear {

using kit::Rows;
using kit::RowsOf;

template <class T, class P>
struct ForwardParams {
  RowsOf<T> feats;
  RowsOf<P> points;
  T* out;  // contiguous
  Rows rows;
  int64_t features;
};

template <class T, class P>
struct BackwardParams {
  RowsOf<T> grad;
  RowsOf<T> feats;  // only read for grad_points; may be null otherwise
  RowsOf<P> points;
  T* grad_feats;   // contiguous, or null
  P* grad_points;  // contiguous, or null
  Rows rows;
  int64_t features;
};

template <class T, class P>
struct DoubleBackwardParams {
  RowsOf<T> grad;
  RowsOf<T> feats;  // may be null if only grad_feats is requested
  RowsOf<P> points;
  RowsOf<T> grad_grad_feats;  // may be null
  RowsOf<P> grad_grad_points;
  // Contiguous, or null. The gradients of grad, feats and points.
  T *grad_grad, *grad_feats;
  P* grad_points;
  Rows rows;
  int64_t features;
};

}  // namespace cppcuda::ops::trilinear
