#pragma once

// The grids of the kernels: pure functions of the sizes and of what the memory allows.

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

}  // namespace cppcuda::interpolation
