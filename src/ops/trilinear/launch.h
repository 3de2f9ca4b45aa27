#pragma once

// How the rows of a call are laid over a grid: a pure function of the sizes and of what the memory allows.

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "core/launch_shape.h"

namespace cppcuda::ops::trilinear {

// Rows that a block stages through shared memory.
struct Tile {
  int rows = 0;               // 0: they are not staged
  core::Divisor row_chunks;   // pieces of 16 bytes in a row of feats
  core::Divisor row_threads;  // threads that compute a row of the output
};

struct RowLaunch {
  core::LaunchShape shape;
  int width = 1;      // values per access; of a tile, values that a thread computes
  int lane_bits = 0;  // 1 << lane_bits threads share one row, one warp at most
  Tile tile;
};

// A row of feats in pieces of 16 bytes: 8 * features elements always are a whole number of them.
inline int64_t row_chunks(int64_t features, int64_t element_bytes) { return features * element_bytes / 2; }

// Values that a thread computes of a row that is staged, where their number divides it.
constexpr int staged_width(int64_t element_bytes) { return element_bytes < 8 ? 2 : 1; }

// How far rows lie apart in a tile, in such pieces: an odd number of them, so that rows start in different banks.
C10_HOST_DEVICE constexpr int64_t chunk_step(int64_t row_chunks) { return row_chunks | 1; }

// Shared bytes of a tile: its rows, and of grad_points what each thread has for it, in the type of sums (0: not wanted).
inline int64_t tile_bytes(int64_t rows, int64_t features, int64_t element_bytes, int64_t threads, int64_t sum_bytes) {
  return rows * (chunk_step(row_chunks(features, element_bytes)) * 16 + threads * 3 * sum_bytes);
}

// packs: whether rows can be read in accesses of 16 bytes. dense: whether all rows are one piece of memory that starts
// on a boundary of 16 bytes. sum_bytes: of a sum for grad_points, 0 if that is not wanted.
inline RowLaunch row_launch(int64_t rows, int64_t features, int64_t element_bytes, bool packs, bool dense,
                            int64_t sum_bytes) {
  const int64_t wide = 16 / element_bytes;
  const bool has_packs = packs && features % wide == 0;
  // With one pack per corner the threads of a warp would each read from a cache line of its own.
  const bool long_rows = has_packs && features >= 2 * wide;
  const int64_t pair = features % 2 == 0 ? staged_width(element_bytes) : 1, threads = features / pair;
  constexpr int64_t most_bytes = 40 << 10, wanted_chunks = 1024, most_rows = 512;
  if (dense && !long_rows && features <= most_bytes &&
      tile_bytes(1, features, element_bytes, threads, sum_bytes) <= most_bytes) {
    const int64_t chunks = row_chunks(features, element_bytes);
    const int64_t staged = std::clamp<int64_t>(wanted_chunks / chunks, 1, most_rows);
    RowLaunch launch{.shape = core::stride_launch(rows, staged),
                     .width = static_cast<int>(pair),
                     .tile = {static_cast<int>(staged), chunks, threads}};
    launch.shape.shared_bytes = static_cast<unsigned>(tile_bytes(staged, features, element_bytes, threads, sum_bytes));
    return launch;
  }
  const int64_t width = has_packs ? wide : 1, accesses = features / width;
  int lane_bits = 0;
  while (lane_bits < 5 && 1 << lane_bits < accesses) ++lane_bits;
  return {.shape = core::stride_launch(rows, core::threads_per_block >> lane_bits),
          .width = static_cast<int>(width),
          .lane_bits = lane_bits,
          .tile = {}};
}

}  // namespace cppcuda::ops::trilinear
