#pragma once

// The grid of a launch, computed from sizes.

#include <algorithm>
#include <cstdint>

#include "cppcuda/kit/math/divide.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

struct LaunchShape {
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes = 0;
};

constexpr int threads_per_block = 128;

// The grid of a kernel with a grid-stride loop; a block does `per_block` units of work in one step.
inline LaunchShape grid_stride_launch(int64_t work, int64_t per_block = threads_per_block) {
  // More blocks than any GPU holds at once. On an H100 (docs/benchmarks) 528 to 8,448 blocks, whose threads take turns,
  // were up to 1.6 times as slow.
  constexpr int64_t max_blocks = 1 << 20;
  const int64_t blocks = ceil_div(work, per_block);
  return {static_cast<unsigned>(std::min(blocks, max_blocks)), threads_per_block};
}

// The number of rows in each part of a call, between `least` and `most`. There are `parts` parts for each segment of
// rows, and the device works on `slots` parts at once. A part takes as long as its rows and `overhead` more. If the
// parts begin together, the time is that of a part times the number of waves; the result makes it as short as possible.
inline int64_t rows_per_part(int64_t rows, int64_t parts, int64_t slots, int64_t overhead, int64_t least,
                             int64_t most) {
  int64_t best = 0, best_time = 0;
  for (int64_t limit = std::min(rows, most); limit > 0 && limit >= std::min(rows, least); --limit) {
    const int64_t segments = ceil_div(rows, limit), rows_of_part = ceil_div(rows, segments);
    const int64_t time = ceil_div(parts * segments, slots) * (rows_of_part + overhead);
    if (best != 0 && time >= best_time) continue;
    best = rows_of_part;
    best_time = time;
  }
  return best;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
