#pragma once

// How the elements of a call are laid over a grid: a pure function of their number.

#include <algorithm>
#include <cstdint>

#include "core/launch_shape.h"

namespace cppcuda::core {

constexpr int pointwise_threads = 256;
// Packs that a thread loads before it uses the first.
constexpr int pointwise_unroll = 4;

// `steps` of one thread each cover the elements; the kernel strides over what the grid does not reach.
inline LaunchShape pointwise_launch(int64_t steps) {
  constexpr int64_t most_blocks = 1 << 20;
  const int64_t blocks = (steps + pointwise_threads - 1) / pointwise_threads;
  return {static_cast<unsigned>(std::min(blocks, most_blocks)), pointwise_threads};
}

}  // namespace cppcuda::core
