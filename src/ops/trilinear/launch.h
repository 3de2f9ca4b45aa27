#pragma once

// How the rows of a call are laid over a grid: a pure function of the sizes and of what the memory allows.

#include <algorithm>
#include <cstdint>

#include "core/launch_shape.h"

namespace cppcuda::ops::trilinear {

struct RowLaunch {
  core::LaunchShape shape;
  int width = 1;      // values per access
  int lanes = 1;      // threads that share one row: a power of two, one warp at most
  int tile_rows = 0;  // of a block; 0: rows are not staged through shared memory
};

// A row of feats in pieces of 16 bytes: 8 * features elements always are a whole number of them.
inline int64_t row_chunks(int64_t features, int64_t element_bytes) { return features * element_bytes / 2; }

// Shared bytes of a tile: its rows, each with 16 bytes more, so that rows start in different banks, and of backward the
// gradients of the output.
inline int64_t tile_bytes(int64_t rows, int64_t features, int64_t element_bytes) {
  return rows * (row_chunks(features, element_bytes) + 1) * 16 + rows * features * element_bytes;
}

// packs: whether rows can be read in accesses of 16 bytes. dense: whether all rows are one piece of memory that starts
// on a boundary of 16 bytes.
inline RowLaunch row_launch(int64_t rows, int64_t features, int64_t element_bytes, bool packs, bool dense) {
  const int64_t wide = 16 / element_bytes;
  const bool has_packs = packs && features % wide == 0;
  // With one pack per corner the threads of a warp would each read from a cache line of its own.
  const bool long_rows = has_packs && features >= 2 * wide;
  constexpr int64_t most_bytes = 40 << 10, wanted_chunks = 1024, most_rows = 512;
  if (dense && !long_rows && tile_bytes(1, features, element_bytes) <= most_bytes) {
    const int64_t wanted = std::clamp<int64_t>(wanted_chunks / row_chunks(features, element_bytes), 1, most_rows);
    RowLaunch launch{.shape = core::stride_launch(rows, wanted), .tile_rows = static_cast<int>(wanted)};
    launch.shape.shared_bytes = static_cast<unsigned>(tile_bytes(wanted, features, element_bytes));
    return launch;
  }
  const int64_t width = has_packs ? wide : 1, accesses = features / width;
  int lanes = 1;
  while (lanes < 32 && lanes < accesses) lanes *= 2;
  return {.shape = core::stride_launch(rows, core::threads_per_block / lanes),
          .width = static_cast<int>(width),
          .lanes = lanes};
}

}  // namespace cppcuda::ops::trilinear
