#pragma once

// How the elements of a call are laid over a grid: a pure function of the sizes.

#include <algorithm>
#include <cstdint>

#include "core/launch_shape.h"

namespace cppcuda::ops::upsample_bilinear2d {

constexpr int threads_per_block = 256;

// `packs` is the number of vector accesses that cover the target; each is a thread's, so that few images of many
// channels and many images of few pixels both fill a GPU.
inline core::LaunchShape pack_launch(int64_t packs) {
  // More blocks than any GPU holds at once; the kernel strides over the rest.
  constexpr int64_t most_blocks = 1 << 20;
  const int64_t blocks = packs / threads_per_block + (packs % threads_per_block != 0);
  return {static_cast<unsigned>(std::min(blocks, most_blocks)), threads_per_block};
}

}  // namespace cppcuda::ops::upsample_bilinear2d
