#pragma once

// The arguments of the kernels, CPU and CUDA: raw pointers, strides in elements, sizes. Groups of rows, [G, B, ...],
// are the kit's batches of rows.

#include <cstdint>

#include "cppcuda/kit/math/rows.h"

namespace cppcuda::ops::lltm_cell {

using kit::RowsOf;

// T is the dtype of the gates, C that of the cell state.
template <class T, class C>
struct ForwardParams {
  const T* gates;  // [rows, 3 size], contiguous
  RowsOf<C> cx;
  T* hy;  // [rows, size], contiguous
  C* cy;
  kit::Rows rows;
  int64_t size;
};

template <class T, class C>
struct BackwardParams {
  RowsOf<T> grad_hy;  // at least one of these two is given
  RowsOf<C> grad_cy;
  RowsOf<T> grad_gates;  // may be null
  RowsOf<T> gates;
  RowsOf<C> cx;
  T* total_grad_gates;  // [rows, 3 size], contiguous, or null
  C* grad_cx;           // [rows, size], contiguous, or null
  kit::Rows rows;
  int64_t size;
};

// The sizes of a cell without groups.
struct CellSizes {
  int64_t rows, inputs, size;

  int64_t concatenated() const { return size + inputs; }
};

// The arguments of the kernels for a whole small cell, without groups. All are contiguous.
template <class T, class C>
struct SmallForwardParams {
  const T *input, *weight, *bias, *hx;
  const C* cx;
  T* hy;
  C* cy;
  T* gates;
  int rows, inputs, size;
};

template <class T, class C>
struct SmallBackwardParams {
  const T* grad_hy;  // at least one of these two is given
  const C* grad_cy;
  const T* grad_gates;  // may be null
  const T* gates;
  const T *input, *weight, *hx;  // null if no requested gradient reads it
  const C* cx;
  T *grad_input, *grad_weight, *grad_bias, *grad_hx;  // null if not requested
  C* grad_cx;
  int rows, inputs, size;
};

// The arguments of the kernels for a sequence, without groups. All are contiguous but weight, whose rows are
// weight_row apart and of which they read the first `size` columns.
template <class T, class C>
struct StepsForwardParams {
  const T* weight;  // [3 size, size]
  int64_t weight_row;
  const T* h0;  // [rows, size]
  const C* c0;
  T* gates;   // [steps, rows, 3 size]; starts as the part that does not depend on the state
  T* output;  // [steps, rows, size]
  C* cells;
  int64_t steps, rows, size;
};

template <class T, class C>
struct StepsBackwardParams {
  const T* weight;
  int64_t weight_row;
  const T* grad_output;  // these five may be null
  const T* grad_hn;
  const C* grad_cn;
  const C* grad_cells;
  const T* grad_gates;
  const T* gates;
  const C* cells;
  const C* c0;
  T* total_grad_gates;  // [steps, rows, 3 size]
  T* grad_h0;           // these two may be null
  C* grad_c0;
  int64_t steps, rows, size;
};

// The gradients of the weights [3 size, size + inputs] and of the bias, which may be null.
template <class T>
struct StepsParametersParams {
  const T* total_grad_gates;
  const T* h0;      // [rows, size]
  const T* output;  // [steps, rows, size]; the last step is not read
  const T* input;   // [steps, rows, inputs]
  T* grad_weight;
  T* grad_bias;
  int64_t steps, rows, inputs, size;
};

}  // namespace cppcuda::ops::lltm_cell
