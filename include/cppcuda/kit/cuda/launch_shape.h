#pragma once

#include <algorithm>
#include <cstdint>

#include "cppcuda/kit/math/divide.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

struct LaunchShape {
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes = 0;
};

constexpr int threads_per_block = 256;

// The grid of a kernel with a grid-stride loop; a block does `per_block` units of work in one step.
inline LaunchShape grid_stride_launch(int64_t work, int64_t per_block = threads_per_block) {
  // This is more blocks than any GPU holds at once.
  constexpr int64_t max_blocks = 1 << 20;
  const int64_t blocks = ceil_div(work, per_block);
  return {static_cast<unsigned>(std::min(blocks, max_blocks)), threads_per_block};
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
