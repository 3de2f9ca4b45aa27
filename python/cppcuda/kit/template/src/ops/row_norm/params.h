// The arguments of the kernels, CPU and CUDA: the tensors and outputs in the order of the declaration, then sizes and
// numbers. Change: the members.
#pragma once

#include <cstdint>

#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/rows.h"

namespace my_ops::ops::row_norm {

namespace kit = cppcuda::kit;

template <class T>
struct ForwardParams {
  kit::RowsOf<T> input;
  T* output;             // [rows, features], contiguous
  kit::opmath<T>* rstd;  // [rows], contiguous, or null
  kit::Rows rows;
  int64_t features;
  double eps;
};

template <class T>
struct BackwardParams {
  kit::RowsOf<T> grad;
  kit::RowsOf<kit::opmath<T>> rstd;
  kit::RowsOf<T> input;
  T* grad_input;  // [rows, features], contiguous
  kit::Rows rows;
  int64_t features;
};

}  // namespace my_ops::ops::row_norm
