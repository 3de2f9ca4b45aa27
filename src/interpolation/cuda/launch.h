#pragma once

// The grids of the kernels: pure functions of the sizes and of what the memory allows.

#include <algorithm>
#include <cstdint>

#include "cppcuda/kit/cuda/launch_shape.h"

namespace cppcuda::interpolation {

struct PointLaunch {
  kit::LaunchShape shape;
  int lane_bits;  // 1 << lane_bits threads share a point, one warp at most
};

// The grid for `work` points or, if each level is work of its own, levels times points. A thread takes `width` features
// at once.
inline PointLaunch point_launch(int64_t work, int64_t features, int width) {
  int lane_bits = 0;
  while (lane_bits < 5 && int64_t{width} << lane_bits < features) ++lane_bits;
  return {kit::grid_stride_launch(work, kit::threads_per_block >> lane_bits), lane_bits};
}

// The widest of the accesses of `pack_size`, 2 and 1 features that divides a row. is_aligned(n) says whether rows allow
// accesses of n features. Two features are what hash grids usually have.
template <class IsAligned>
int access_width(int64_t features, int pack_size, IsAligned is_aligned) {
  for (const int width : {pack_size, 2}) {
    if (features % width == 0 && is_aligned(width)) return width;
  }
  return 1;
}

// The number of levels that a thread of a scatter takes one after the other: their features, of so many bytes, fill a
// sector. On an H100 (docs/benchmarks) four levels of two features were 1.04 to 1.05 times as fast as two, 1.11 to 1.13
// times as fast as one, and 1.07 to 1.23 times as fast as eight.
inline int64_t levels_of_scatter(int64_t features, int64_t bytes) {
  return std::max<int64_t>(1, 32 / std::max<int64_t>(1, features * bytes));
}

// The number of levels of a launch, where the gradient of points is a sum over them. Tables of 16 MiB in all stay in
// the L2 cache; `largest` is the largest table in bytes. On an H100, backward of 2^20 points with 4 or 32 MiB took up
// to 1.06 times as long, and with one launch for all levels up to 1.15 times. With 2^14 points or fewer four launches
// took 9 to 11 us more than one.
inline int64_t levels_of_launch(int64_t points, int64_t levels, int64_t largest) {
  constexpr int64_t few = int64_t{1} << 16;
  if (points < few) return levels;
  return std::clamp<int64_t>((int64_t{16} << 20) / std::max<int64_t>(1, largest), 1, levels);
}

// The number of features that a thread of a scatter adds at once. has_vectors: whether the GPU adds two or four float32
// with one instruction, which on an H100 was 1.13 to 1.32 times as fast for two features, and for 32 features 1.08
// times as fast if the L2 cache holds the table. is_aligned(n) says whether rows allow accesses of n features.
template <class IsAligned>
int scatter_width(int64_t features, bool has_vectors, IsAligned is_aligned) {
  if (has_vectors && features == 2 && is_aligned(2)) return 2;
  return has_vectors && features % 4 == 0 && is_aligned(4) ? 4 : 1;
}

}  // namespace cppcuda::interpolation
