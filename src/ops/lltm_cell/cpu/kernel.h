#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"
#include "cppcuda/kit/math/opmath.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {

// Each function computes a part of its output; parts may run concurrently.
template <class Isa, class T, class C>
struct CellKernel {
  using A = kit::opmath<T>;

  // Columns begin .. end - 1 of a row.
  static void forward(const ForwardParams<T, C>& p, int64_t row, int64_t begin, int64_t end);
  static void backward(const BackwardParams<T, C>& p, int64_t row, int64_t begin, int64_t end);

  // Columns begin .. end - 1 of the state in all rows.
  static void small_forward(const SmallForwardParams<T, C>& p, int begin, int end);
  // The gradients of cx, weight, bias and the gates [rows, 3 size] for these columns.
  static void small_backward(const SmallBackwardParams<T, C>& p, A* d_gates, int begin, int end);
  // The gradients of hx and input in rows begin .. end - 1, from the gradients of all gates.
  static void small_backward_inputs(const SmallBackwardParams<T, C>& p, const A* d_gates, int begin, int end);
};

}  // namespace cppcuda::ops::lltm_cell
