#pragma once

// How the elements of a call are laid over a grid: a pure function of the sizes.

#include <algorithm>
#include <cstdint>

#include "core/launch_shape.h"

namespace cppcuda::ops::lltm_cell {

constexpr int threads_per_block = 256;

// One thread per pack of elements of the state.
inline core::LaunchShape pack_launch(int64_t packs) {
  // More blocks than any GPU holds at once; the kernel strides over the rest.
  constexpr int64_t most_blocks = 1 << 20;
  const int64_t blocks = packs / threads_per_block + (packs % threads_per_block != 0);
  return {static_cast<unsigned>(std::min(blocks, most_blocks)), threads_per_block};
}

}  // namespace cppcuda::ops::lltm_cell
