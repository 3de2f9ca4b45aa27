#pragma once

// How the target is laid over a grid: a pure function of the sizes and of what the memory allows.

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "core/launch_shape.h"

namespace cppcuda::ops::upsample_bilinear2d {

// Planes that a thread computes, where they are not channels_last: what it takes to find a row serves all of them. With
// more, registers run out.
constexpr int planes_per_thread(int width, int64_t element_bytes) { return width > 1 ? 2 : element_bytes < 8 ? 8 : 4; }

// Columns of the output's gradient that a thread reads at once.
constexpr int columns_together = 4;

// The target in parts, one for each thread: some rows of a strip. A strip is one access wide: columns of a plane, or, in
// channels_last, channels of a column.
struct Parts {
  int64_t count;
  core::Divisor strips;    // of a row
  core::Divisor segments;  // of a strip
  int64_t segment_rows;    // the last segment may have fewer
  core::Divisor channels;  // planes of an image; in channels_last strips of a column

  struct Part {
    int64_t image;  // or, but in channels_last, group of planes
    int64_t row, strip;
  };

  // Neighbours lie next to each other in a row.
  C10_HOST_DEVICE Part operator[](int64_t index) const {
    const auto [rest, strip] = strips.divide(index);
    const auto [image, segment] = segments.divide(rest);
    return {image, segment * segment_rows, strip};
  }
};

struct ImageLaunch {
  core::LaunchShape shape;
  Parts parts;
  int width;   // values per access
  int planes;  // that a thread computes
};

struct ImageSizes {
  int64_t batch, channels, height, width;
};

// packs: whether the target's rows, or its channels if they are last, may be written in accesses of 16 bytes. planes:
// whether a thread may compute several.
inline ImageLaunch image_launch(const ImageSizes& target, int64_t element_bytes, bool channels_last, bool packs,
                                bool planes) {
  // Fewer would not fill a large device.
  constexpr int64_t enough_parts = 1 << 16, most_rows = 16;
  const int64_t wide = 16 / element_bytes, row = channels_last ? target.channels * target.width : target.width;
  const auto launch_of = [&](int64_t width, int64_t planes, int64_t rows) {
    const int64_t images = channels_last ? target.batch : (target.batch * target.channels + planes - 1) / planes;
    const int64_t segments = (target.height + rows - 1) / rows;
    const Parts parts{images * segments * (row / width), row / width, segments, rows,
                      channels_last ? target.channels / width : target.channels};
    return ImageLaunch{core::stride_launch(parts.count), parts, static_cast<int>(width), static_cast<int>(planes)};
  };
  int64_t width = packs && (channels_last ? target.channels : target.width) % wide == 0 ? wide : 1;
  int64_t together = channels_last || !planes ? 1 : planes_per_thread(static_cast<int>(width), element_bytes);
  if (!channels_last && launch_of(width, together, 1).parts.count < enough_parts) width = together = 1;
  int64_t rows = std::min(most_rows, target.height);
  while (rows > 1 && launch_of(width, together, rows).parts.count < enough_parts) rows = (rows + 1) / 2;
  return launch_of(width, together, rows);
}

}  // namespace cppcuda::ops::upsample_bilinear2d
