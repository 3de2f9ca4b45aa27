#pragma once

// The mapping of rows to a grid: a pure function of sizes and alignment.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cppcuda/kit/cuda/banks.h"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/math/divide.h"

namespace cppcuda::ops::trilinear {

// The rows that a block stages through shared memory.
struct Tile {
  int rows = 0;
  kit::Divisor row_chunks;  // 16-byte vectors in a row of feats
  kit::Divisor row_packs;   // accesses of `width` values in a row of the output
  int row_step = 0;         // the pitch of rows in shared memory, in 16-byte vectors
};

// How the threads of a warp access their rows.
enum class Access {
  whole,   // a thread computes whole rows
  staged,  // through shared memory
  direct,  // each value from global memory
};

struct RowLaunch {
  Access access;
  kit::LaunchShape shape;
  int width = 1;      // values per access
  int lane_bits = 0;  // 1 << lane_bits threads share one row, one warp at most
  Tile tile = {};
};

// The number of 16-byte vectors in a row of feats; 8 * features elements always are a multiple of 16 bytes.
inline int64_t row_chunks(int64_t features, int64_t element_bytes) { return features * element_bytes / 2; }

// The values that a thread of a tile accesses at once, if the number of features allows it: the banks of shared memory
// are 4 bytes wide.
constexpr int staged_width(int64_t element_bytes) { return element_bytes == 2 ? 2 : 1; }

// The numbers of features for which there are kernels of whole rows.
using WholeFeatures = std::integer_sequence<int, 1, 2, 3, 4, 8>;

// Whether a thread can compute a whole row, which has at most 128 bytes of feats.
constexpr bool is_whole(int64_t features, int64_t element_bytes) {
  const auto is_one_of = [features]<int... N>(std::integer_sequence<int, N...>) { return ((features == N) || ...); };
  return is_one_of(WholeFeatures{}) && 8 * features * element_bytes <= 128;
}

// The rows per thread, so that a thread has at least four 16-byte vectors in flight.
constexpr int rows_per_thread(int row_chunks) { return row_chunks < 4 ? (3 + row_chunks) / row_chunks : 1; }

// The pitch of rows, padded so that the rows of a warp start in different banks. The threads that share a row read
// `together` bytes of a corner at the same time.
constexpr int row_step(int chunks, int together) {
  const int unit = together < 128 && together > 16 ? together / 16 : 1;
  return ((chunks + unit - 1) / unit | 1) * unit;
}

inline RowLaunch whole_launch(int64_t rows, int64_t features, int64_t element_bytes) {
  constexpr int warps = kit::threads_per_block / 32;
  const int chunks = static_cast<int>(row_chunks(features, element_bytes)), warp_rows = 32 * rows_per_thread(chunks);
  RowLaunch launch{.access = Access::whole, .shape = kit::grid_stride_launch(rows, warps * warp_rows)};
  launch.shape.shared_bytes = static_cast<unsigned>(warps * kit::padded(warp_rows * chunks, 16) * 16);
  return launch;
}

// The 16-byte vectors of a tile, and of a row's padding.
inline constexpr int64_t max_chunks = (40 << 10) / 16, max_apart = 8;

inline bool is_staged(int64_t features, int64_t element_bytes) {
  return features <= max_chunks && row_chunks(features, element_bytes) + max_apart <= max_chunks;
}

inline RowLaunch staged_launch(int64_t rows, int64_t features, int64_t element_bytes) {
  // At least four vectors per thread and one row per warp.
  constexpr int64_t target_chunks = 4 * kit::threads_per_block, target_rows = kit::threads_per_block / 32;
  const int chunks = static_cast<int>(row_chunks(features, element_bytes));
  const int width = features % 2 == 0 ? staged_width(element_bytes) : 1;
  const int64_t staged = std::min(std::max(target_chunks / chunks, target_rows), max_chunks / (chunks + max_apart));
  int lane_bits = 2;
  while (lane_bits < 5 && staged << (lane_bits + 1) <= kit::threads_per_block) ++lane_bits;
  const Tile tile{static_cast<int>(staged), chunks, features / width,
                  row_step(chunks, static_cast<int>(width * element_bytes) << lane_bits)};
  RowLaunch launch{.access = Access::staged,
                   .shape = kit::grid_stride_launch(rows, staged),
                   .width = width,
                   .lane_bits = lane_bits,
                   .tile = tile};
  launch.shape.shared_bytes = static_cast<unsigned>(staged * tile.row_step * 16);
  return launch;
}

inline RowLaunch direct_launch(int64_t rows, int64_t features, int width) {
  int lane_bits = 0;
  while (lane_bits < 5 && width << lane_bits < features) ++lane_bits;
  return {.access = Access::direct,
          .shape = kit::grid_stride_launch(rows, kit::threads_per_block >> lane_bits),
          .width = width,
          .lane_bits = lane_bits};
}

// packs: whether rows can be read in 16-byte accesses. dense: whether all rows are contiguous and start on a 16-byte
// boundary.
inline RowLaunch row_launch(int64_t rows, int64_t features, int64_t element_bytes, bool packs, bool dense) {
  const int wide = static_cast<int>(16 / element_bytes);
  const bool has_packs = packs && features % wide == 0;
  // With one vector per corner, each thread of a warp would read from a different cache line.
  const bool long_rows = has_packs && features >= 2 * wide;
  if (dense && is_whole(features, element_bytes)) return whole_launch(rows, features, element_bytes);
  if (dense && !long_rows && is_staged(features, element_bytes)) return staged_launch(rows, features, element_bytes);
  return direct_launch(rows, features, has_packs ? wide : 1);
}

}  // namespace cppcuda::ops::trilinear
