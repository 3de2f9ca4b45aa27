#pragma once

// How the rows of a call are laid over a grid: a pure function of the sizes.

#include <cstdint>

#include "core/launch_shape.h"

namespace cppcuda::ops::trilinear {

struct RowLaunch {
  core::LaunchShape shape;
  int lanes;  // threads that share one row: a power of two, one warp at most
};

// `packs` is the number of vector accesses that cover the features of one row.
inline RowLaunch row_launch(int64_t rows, int64_t packs) {
  int lanes = 1;
  while (lanes < 32 && lanes < packs) lanes *= 2;
  return {core::stride_launch(rows, core::threads_per_block / lanes), lanes};
}

}  // namespace cppcuda::ops::trilinear
