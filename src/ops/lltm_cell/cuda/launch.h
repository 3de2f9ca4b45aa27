#pragma once

// Selects the cells that take one kernel in each direction, and their grids: pure functions of the sizes.

#include <algorithm>
#include <cstdint>

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/tunable.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {

// A block of backward takes this many rows of [grad_hx, grad_input], and this many packs of columns, at a time.
constexpr int small_backward_threads = 256, small_rows = 4, small_columns = 8;

// The gradient of the gates in the accumulation type, which backward has in shared memory.
inline int64_t gate_gradient_bytes(const CellSizes& cell, int64_t sum_bytes) {
  return cell.rows * 3 * cell.size * sum_bytes;
}

// Below this limit a product takes less time than the launches and copies around it. The limit is an estimate, not
// measured.
inline bool is_small_on_cuda(const CellSizes& cell, int64_t value_bytes) {
  constexpr int64_t max_shared = 40 << 10, max_products = 1 << 21;
  const int64_t sum_bytes = std::max<int64_t>(value_bytes, 4);
  // Factor by factor, because the product of arbitrary sizes may overflow.
  return cell.rows > 0 && cell.size > 0 && cell.rows <= max_shared && cell.size <= max_shared &&
         cell.inputs <= max_products && gate_gradient_bytes(cell, sum_bytes) <= max_shared &&
         cell.rows * 3 * cell.size * cell.concatenated() <= max_products;
}

// The threads that share one element of the state in forward. Adjacent threads read adjacent weights.
constexpr int small_lanes = 8;

inline kit::LaunchShape small_forward_launch(const CellSizes& cell) {
  return kit::grid_stride_launch(cell.rows * cell.size, kit::threads_per_block / small_lanes);
}

// width: values per access.
inline kit::LaunchShape small_backward_launch(const CellSizes& cell, int64_t sum_bytes, int width) {
  // Every block computes all gradients of gates for itself, so more blocks repeat more work.
  const auto max_blocks = static_cast<unsigned>(kit::tunable("lltm_small_blocks", 64));
  const int64_t partial_sums = small_backward_threads / 32 * small_rows * small_columns * width;
  kit::LaunchShape shape = kit::grid_stride_launch(3 * cell.size * cell.concatenated() / width, small_backward_threads);
  shape.blocks = std::min(shape.blocks, max_blocks);
  shape.threads = small_backward_threads;
  shape.shared_bytes = static_cast<unsigned>(gate_gradient_bytes(cell, sum_bytes) + partial_sums * sum_bytes);
  return shape;
}

}  // namespace cppcuda::ops::lltm_cell
