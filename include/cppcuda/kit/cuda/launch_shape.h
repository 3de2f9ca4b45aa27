#pragma once

#include <algorithm>
#include <cstdint>

#include "cppcuda/kit/math/divide.h"

namespace cppcuda::kit {

struct LaunchShape {
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes = 0;
};

constexpr int threads_per_block = 256;

// The launch of a grid-stride loop over `work` items, of which a block does `per_block` per step.
inline LaunchShape grid_stride_launch(int64_t work, int64_t per_block = threads_per_block) {
  // More blocks than any GPU holds at once.
  constexpr int64_t max_blocks = 1 << 20;
  const int64_t blocks = ceil_div(work, per_block);
  return {static_cast<unsigned>(std::min(blocks, max_blocks)), threads_per_block};
}

}  // namespace cppcuda::kit
