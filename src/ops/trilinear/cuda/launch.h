#pragma once

// The grid for the rows of a call: a pure function of the sizes and of what the memory allows.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/math/divide.h"

namespace cppcuda::ops::trilinear {

// The rows that a warp stages in shared memory.
struct Tile {
  int rows = 0;
  int packs = 0;  // 16-byte packs of shared memory
  // For the kernels to which the number of features is not known:
  int row_step = 0;           // the distance of rows in shared memory, in packs
  kit::Divisor input_packs;   // packs in a row of feats
  kit::Divisor output_packs;  // accesses of `width` values in a row of the output
};

// How the threads of a warp access their rows.
enum class Access {
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

// The number of packs in a row of feats: 8 * features elements always are a multiple of 16 bytes.
inline int64_t input_packs(int64_t features, int64_t element_bytes) { return features * element_bytes / 2; }

// The number of values that a thread of a tile reads at once, if it divides the number of features: the banks of shared
// memory are 4 bytes wide.
constexpr int staged_width(int64_t element_bytes) { return element_bytes == 2 ? 2 : 1; }

// The numbers of features for which there are kernels of whole rows.
using WholeFeatures = std::integer_sequence<int, 1, 2, 3, 4, 8>;

// Whether a thread can compute a whole row. It has the row's feats in flight, up to 128 bytes.
constexpr bool is_whole(int64_t features, int64_t element_bytes) {
  const auto is_one_of = [features]<int... N>(std::integer_sequence<int, N...>) { return ((features == N) || ...); };
  return is_one_of(WholeFeatures{}) && 8 * features * element_bytes <= 128;
}

// The number of rows per thread, so that it has at least four packs in flight.
constexpr int rows_per_thread(int input_packs) { return input_packs < 4 ? (3 + input_packs) / input_packs : 1; }

// Threads that share a row read `together` bytes of a corner: rows start so far apart that the rows of a warp are in
// different banks.
constexpr int row_step(int packs, int together) {
  const int unit = together < 128 && together > 16 ? together / 16 : 1;
  return ((packs + unit - 1) / unit | 1) * unit;
}

// Whole rows, which threads read a pack at a time, are padded in groups of eight packs if rows divide these.
constexpr int rows_per_group(int packs) { return 8 % packs == 0 ? 8 / packs : 1; }
constexpr int group_step(int packs) { return row_step(rows_per_group(packs) * packs, 16); }

// The number of packs that a thread of a tile has in flight.
constexpr int staged_unroll = 8;

// The largest number of packs in a tile, and of padding packs per row.
inline constexpr int64_t max_packs = (40 << 10) / 16 / (kit::threads_per_block / 32), max_apart = 8;

inline bool is_staged(int64_t features, int64_t element_bytes) {
  return features <= max_packs && input_packs(features, element_bytes) + max_apart <= max_packs;
}

inline RowLaunch staged_launch(int64_t rows, int width, int lane_bits, const Tile& tile) {
  constexpr int warps = kit::threads_per_block / 32;
  kit::LaunchShape shape = kit::grid_stride_launch(rows, warps * tile.rows);
  shape.shared_bytes = static_cast<unsigned>(warps * tile.packs * 16);
  return {Access::staged, shape, width, lane_bits, tile};
}

inline RowLaunch whole_launch(int64_t rows, int64_t features, int64_t element_bytes) {
  const int packs = static_cast<int>(input_packs(features, element_bytes));
  Tile tile;
  tile.rows = 32 * rows_per_thread(packs);
  tile.packs = tile.rows / rows_per_group(packs) * group_step(packs);
  return staged_launch(rows, /*width=*/1, /*lane_bits=*/0, tile);
}

inline RowLaunch shared_launch(int64_t rows, int64_t features, int64_t element_bytes) {
  constexpr int64_t target_packs = staged_unroll * 32;  // half and twice as many: the same times for F = 8 on an H100
  const int packs = static_cast<int>(input_packs(features, element_bytes));
  const int width = features % 2 == 0 ? staged_width(element_bytes) : 1;
  // The number of threads per row for which the rows of a tile take the fewest steps of a warp, each. A step is one
  // access per thread and corner; the weights of a point take about one step. Fewer than four threads per row would
  // read from the same banks.
  const int64_t most = std::max<int64_t>(1, target_packs / packs);
  int64_t tile_rows = 1, best_steps = 0;
  int lane_bits = 0;
  for (int bits = 2; bits <= 5; ++bits) {
    const int64_t together = 32 >> bits, r = most < together ? most : most / together * together;
    const int64_t steps = kit::ceil_div(r, together) * (kit::ceil_div(features, int64_t{width} << bits) + 1);
    if (lane_bits != 0 && steps * tile_rows >= best_steps * r) continue;
    tile_rows = r;
    best_steps = steps;
    lane_bits = bits;
  }
  const int step = row_step(packs, static_cast<int>(width * element_bytes) << lane_bits);
  return staged_launch(
      rows, width, lane_bits,
      {static_cast<int>(tile_rows), static_cast<int>(tile_rows) * step, step, packs, features / width});
}

inline RowLaunch direct_launch(int64_t rows, int64_t features, int width) {
  int lane_bits = 0;
  while (lane_bits < 5 && width << lane_bits < features) ++lane_bits;
  return {.access = Access::direct,
          .shape = kit::grid_stride_launch(rows, kit::threads_per_block >> lane_bits),
          .width = width,
          .lane_bits = lane_bits};
}

// The bytes of a corner from which on the threads of a row read it directly. With one pack per corner each thread of a
// warp would read from a cache line of its own. On an H100 (docs/benchmarks) rows of 32 bytes were 1.06 times as fast
// staged in forward, and 0.95 times in backward; rows of 128 bytes were 0.99 and 0.92 times as fast.
constexpr int64_t forward_direct_bytes = 64, backward_direct_bytes = 32;

// packs: whether rows can be read in accesses of 16 bytes. dense: whether all rows are one contiguous block that is
// aligned to 16 bytes.
inline RowLaunch row_launch(int64_t rows, int64_t features, int64_t element_bytes, bool packs, bool dense,
                            int64_t direct_bytes) {
  const int pack_size = static_cast<int>(16 / element_bytes);
  const bool has_packs = packs && features % pack_size == 0;
  const bool long_rows = has_packs && features * element_bytes >= direct_bytes;
  if (dense && is_whole(features, element_bytes)) return whole_launch(rows, features, element_bytes);
  if (dense && !long_rows && is_staged(features, element_bytes)) return shared_launch(rows, features, element_bytes);
  return direct_launch(rows, features, has_packs ? pack_size : 1);
}

}  // namespace cppcuda::ops::trilinear
