#pragma once

// How the target is laid over a grid: a pure function of the sizes and of what the memory allows.

#include <cstdint>

#include "core/launch_shape.h"

namespace cppcuda::ops::upsample_bilinear2d {

// Channels that a thread computes one by one.
constexpr int channels_per_thread = 8;

struct ImageLaunch {
  core::LaunchShape shape;
  int64_t work;  // pixels times groups of channels
  int channels;  // of a group
  int width;     // values per access
};

// pixels: of one image of the target. packs: whether channels can be read and written in accesses of 16 bytes.
inline ImageLaunch image_launch(int64_t batch, int64_t channels, int64_t pixels, int64_t element_bytes,
                                bool channels_last, bool packs) {
  const int64_t wide = 16 / element_bytes;
  ImageLaunch launch{.shape = {}, .work = 0, .channels = 1, .width = 1};
  if (packs && channels % wide == 0) {
    launch.width = launch.channels = static_cast<int>(wide);
  } else if (!channels_last) {
    // A smaller target would not fill the device.
    constexpr int64_t enough_threads = 1 << 17;
    const int64_t grouped = batch * ((channels + channels_per_thread - 1) / channels_per_thread) * pixels;
    if (channels > 1 && grouped >= enough_threads) launch.channels = channels_per_thread;
  }
  launch.work = batch * ((channels + launch.channels - 1) / launch.channels) * pixels;
  launch.shape = core::stride_launch(launch.work);
  return launch;
}

}  // namespace cppcuda::ops::upsample_bilinear2d
