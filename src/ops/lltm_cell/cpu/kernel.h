#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"
#include "cppcuda/kit/math/opmath.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {

// Each function computes a part of what its parameters describe; parts may run at the same time.
template <class Isa, class T, class C>
struct CellKernel {
  using A = kit::opmath<T>;

  // Columns begin .. end - 1 of a row.
  static void forward(const ForwardParams<T, C>& p, int64_t row, int64_t begin, int64_t end);
  static void backward(const BackwardParams<T, C>& p, int64_t row, int64_t begin, int64_t end);

  // Columns begin .. end - 1 of the state in all rows.
  static void small_forward(const SmallForwardParams<T, C>& p, int begin, int end);
  // The gradients of cx, weight and bias for these columns, and those of the gates, [rows, 3 size].
  static void small_backward(const SmallBackwardParams<T, C>& p, A* total_grad_gates, int begin, int end);
  // The gradients of rows begin .. end - 1 of hx and input, from those of all gates.
  static void small_backward_inputs(const SmallBackwardParams<T, C>& p, const A* total_grad_gates, int begin, int end);
};

// A sequence: rows begin .. end - 1 at all steps. Rows are independent of each other.
template <class Isa, class T, class C>
struct StepsKernel {
  using A = kit::opmath<T>;

  static constexpr int tile_rows = 8;  // rows that are computed together

  // transposed: the weights [size, 3 size]. memory: tile_rows rows of the state.
  static void forward(const StepsForwardParams<T, C>& p, const A* transposed, A* memory, int64_t begin, int64_t end);
  // weight: the weights [3 size, size]. memory: 5 tile_rows rows.
  static void backward(const StepsBackwardParams<T, C>& p, const A* weight, A* memory, int64_t begin, int64_t end);
};

template <class Isa, class T>
struct StepsParametersKernel {
  using A = kit::opmath<T>;

  // Gates begin .. end - 1. sums: zeros, [3 size, size + inputs], which may be grad_weight.
  static void run(const StepsParametersParams<T>& p, A* sums, int64_t begin, int64_t end);
};

}  // namespace cppcuda::ops::lltm_cell
