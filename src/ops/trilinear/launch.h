#pragma once

// How the rows of a call are laid over a grid: a pure function of the sizes.

#include <algorithm>
#include <cstdint>

#include "core/launch_shape.h"

namespace cppcuda::ops::trilinear {

struct RowLaunch {
  core::LaunchShape shape;
  int lanes;  // threads that share one row: a power of two, one warp at most
};

constexpr int threads_per_block = 256;

// `packs` is the number of vector accesses that cover the features of one row.
inline RowLaunch row_launch(int64_t rows, int64_t packs) {
  // More blocks than any GPU holds at once; the kernel strides over the rest.
  constexpr int64_t most_blocks = 1 << 20;
  int lanes = 1;
  while (lanes < 32 && lanes < packs) lanes *= 2;
  const int64_t rows_per_block = threads_per_block / lanes;
  const int64_t blocks = (rows + rows_per_block - 1) / rows_per_block;
  return {{static_cast<unsigned>(std::min(blocks, most_blocks)), threads_per_block}, lanes};
}

}  // namespace cppcuda::ops::trilinear
