// The arguments of the kernels, CPU and CUDA: raw pointers, strides in elements, sizes. Change: the members.
#pragma once

#include <cstdint>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/rows.h"

namespace my_ops::ops::row_norm {

namespace kit = cppcuda::kit;

// A tensor [B?, N, F], or [B?, N] with one value per row. Any strides: an expanded tensor has strides of 0.
template <class T>
struct Operand {
  const T* data;
  kit::RowStride strides;
  int64_t step = 0;  // between the values of a row

  CPPCUDA_HOST_DEVICE const T* row(const kit::Rows& rows, int64_t r) const { return data + strides.offset(rows, r); }
};

template <class T>
struct ForwardParams {
  Operand<T> input;
  T* output;             // [rows, features], contiguous
  kit::opmath<T>* rstd;  // [rows], contiguous, or null
  kit::Rows rows;
  int64_t features;
  double eps;
};

template <class T>
struct BackwardParams {
  Operand<T> grad, input;
  Operand<kit::opmath<T>> rstd;
  T* grad_input;  // [rows, features], contiguous
  kit::Rows rows;
  int64_t features;
};

}  // namespace my_ops::ops::row_norm
