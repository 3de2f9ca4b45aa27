#pragma once

// Selects the cells and sequences that take one kernel in each direction, and their grids: pure functions of the sizes.

#include <algorithm>
#include <cstdint>

#include "cppcuda/kit/cuda/launch_shape.h"
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
  // Every block computes all gradients of gates for itself, so more blocks repeat more work. On an H100
  // (docs/benchmarks) a cell of 16 rows, 32 inputs and 128 features took 1.24 times as long with 16 blocks, 1.05 with
  // 32, 1.00 with 128.
  constexpr unsigned max_blocks = 64;
  const int64_t partial_sums = small_backward_threads / 32 * small_rows * small_columns * width;
  kit::LaunchShape shape = kit::grid_stride_launch(3 * cell.size * cell.concatenated() / width, small_backward_threads);
  shape.blocks = std::min(shape.blocks, max_blocks);
  shape.threads = small_backward_threads;
  shape.shared_bytes = static_cast<unsigned>(gate_gradient_bytes(cell, sum_bytes) + partial_sums * sum_bytes);
  return shape;
}

// ---- sequences

// The largest state whose recurrent weights fit the registers of a block. A thread, which has 255 at most, has a weight
// for each feature.
constexpr int64_t max_size_in_registers(int64_t value_bytes) { return value_bytes == 8 ? 64 : 128; }

// One for each feature of each of the three gates, in whole warps.
constexpr int steps_threads(int features) { return kit::round_up(3 * features, 32); }

struct StepsLaunch {
  kit::LaunchShape shape;
  int block_rows;
};

// row_bytes: the shared memory for a row. resident_blocks(threads, shared_bytes): the number of blocks that the device
// holds at once.
template <class ResidentBlocks>
StepsLaunch steps_launch(int64_t rows, int64_t size, int64_t row_bytes, ResidentBlocks resident_blocks) {
  // A step takes as long as its barriers and exchanges and the products of its rows. On an H100 (docs/benchmarks) 4,096
  // rows took 1.24 times as long with 2 rows per block as with 8, and with overheads from 0 to 4 the same time.
  constexpr int64_t max_rows = 8, overhead = 1;
  const auto threads = static_cast<unsigned>(steps_threads(static_cast<int>(size)));
  const int64_t slots = resident_blocks(threads, static_cast<unsigned>(max_rows * row_bytes));
  const int64_t block_rows = kit::rows_per_part(rows, 1, slots, overhead, 1, max_rows);
  kit::LaunchShape shape = kit::grid_stride_launch(rows, block_rows);
  shape.threads = threads;
  shape.shared_bytes = static_cast<unsigned>(block_rows * row_bytes);
  return {shape, static_cast<int>(block_rows)};
}

}  // namespace cppcuda::ops::lltm_cell
