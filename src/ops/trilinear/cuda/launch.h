#pragma once

// The grid for the rows of a call: a pure function of the sizes and of what the memory allows.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cppcuda/kit/cuda/banks.h"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/tunable.h"
#include "cppcuda/kit/math/divide.h"

namespace cppcuda::ops::trilinear {

// The rows that a block stages in shared memory.
struct Tile {
  int rows = 0;
  kit::Divisor input_packs;   // 16-byte packs in a row of feats
  kit::Divisor output_packs;  // accesses of `width` values in a row of the output
  int row_step = 0;           // the distance of rows in shared memory, in packs
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

inline RowLaunch whole_launch(int64_t rows, int64_t features, int64_t element_bytes) {
  constexpr int warps = kit::threads_per_block / 32;
  const int packs = static_cast<int>(input_packs(features, element_bytes)), warp_rows = 32 * rows_per_thread(packs);
  RowLaunch launch{.access = Access::whole, .shape = kit::grid_stride_launch(rows, warps * warp_rows)};
  launch.shape.shared_bytes = static_cast<unsigned>(warps * kit::padded(warp_rows * packs, 16) * 16);
  return launch;
}

// The largest number of packs in a tile, and of padding packs per row.
inline constexpr int64_t max_packs = (40 << 10) / 16, max_apart = 8;

inline bool is_staged(int64_t features, int64_t element_bytes) {
  return features <= max_packs && input_packs(features, element_bytes) + max_apart <= max_packs;
}

inline RowLaunch staged_launch(int64_t rows, int64_t features, int64_t element_bytes) {
  // Four packs per thread, but at least one row per warp.
  constexpr int64_t target_rows = kit::threads_per_block / 32;
  const int64_t target_packs = kit::tunable("trilinear_staged_packs", 4 * kit::threads_per_block);
  const int packs = static_cast<int>(input_packs(features, element_bytes));
  const int width = features % 2 == 0 ? staged_width(element_bytes) : 1;
  const int64_t staged = std::min(std::max(target_packs / packs, target_rows), max_packs / (packs + max_apart));
  int lane_bits = 2;
  while (lane_bits < 5 && staged << (lane_bits + 1) <= kit::threads_per_block) ++lane_bits;
  const Tile tile{static_cast<int>(staged), packs, features / width,
                  row_step(packs, static_cast<int>(width * element_bytes) << lane_bits)};
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

// packs: whether rows can be read in accesses of 16 bytes. dense: whether all rows are one contiguous block that is
// aligned to 16 bytes.
inline RowLaunch row_launch(int64_t rows, int64_t features, int64_t element_bytes, bool packs, bool dense) {
  const int pack_size = static_cast<int>(16 / element_bytes);
  const bool has_packs = packs && features % pack_size == 0;
  // The bytes of a corner from which on the threads of a row read it directly. With one pack per corner each thread of
  // a warp would read from a cache line of its own. Not measured.
  const bool long_rows = has_packs && features * element_bytes >= kit::tunable("trilinear_direct_bytes", 32);
  if (dense && is_whole(features, element_bytes)) return whole_launch(rows, features, element_bytes);
  if (dense && !long_rows && is_staged(features, element_bytes)) return staged_launch(rows, features, element_bytes);
  return direct_launch(rows, features, has_packs ? pack_size : 1);
}

}  // namespace cppcuda::ops::trilinear
