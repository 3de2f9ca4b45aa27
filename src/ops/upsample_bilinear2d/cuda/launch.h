#pragma once

// The grid of a call: a pure function of the sizes and of what the memory allows. The target is what a kernel writes,
// and the source what it reads: input and output, or in backward their gradients.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/math/divide.h"
#include "cppcuda/kit/math/host_device.h"
#include "ops/upsample_bilinear2d/math.h"

namespace cppcuda::ops::upsample_bilinear2d {

// The number of planes that a thread computes in forward in NCHW, so that the address computation of a row serves all
// of them. With more, the kernel runs out of registers.
constexpr int planes_per_thread(int64_t element_bytes) { return element_bytes < 8 ? 8 : 4; }

// The number of columns of the output's gradient that a thread reads at once.
constexpr int columns_together = 4;

// The target is split into parts; a thread computes one part, which is some rows of a strip. A strip is one access
// wide: adjacent columns of a plane, or, in channels_last, channels of a column.
struct Parts {
  int64_t count;
  kit::Divisor strips;    // of a row
  kit::Divisor segments;  // of a strip
  int64_t segment_rows;   // the last segment may have fewer
  kit::Divisor channels;  // planes of an image; in channels_last strips of a column

  struct Part {
    int64_t image;  // in NCHW the group of planes
    int64_t row, strip;
  };

  // Neighbouring threads compute neighbouring strips of a row.
  CPPCUDA_HOST_DEVICE Part operator[](int64_t index) const {
    const auto [rest, strip] = strips.divide(index);
    const auto [image, segment] = segments.divide(rest);
    return {image, segment * segment_rows, strip};
  }
};

struct ImageLaunch {
  kit::LaunchShape shape;
  Parts parts;
  int width;   // values per access
  int planes;  // that a thread computes
};

struct ImageSizes {
  int64_t batch, channels, height, width;
};

// The largest number of rows of a part. On an H100 (docs/benchmarks) times with 32 and 128 differed by 2 % at most.
constexpr int64_t max_rows = 64;

// packs: whether channels_last data can be read and written in packs. max_planes: the number of planes that a thread
// may compute in NCHW. resident_blocks(width, planes): the number of blocks that the device holds at once.
template <class ResidentBlocks>
ImageLaunch image_launch(const ImageSizes& target, int64_t element_bytes, bool channels_last, bool packs,
                         int max_planes, ResidentBlocks resident_blocks) {
  // The set-up of a thread, and the row of the source that the next part reads as well, in rows. On an H100 calls with
  // 0 took up to 1.7 times as long, and with 1 and 4 the same time.
  constexpr int64_t overhead = 2;
  const int64_t pack_size = 16 / element_bytes, row = channels_last ? target.channels * target.width : target.width;
  const int64_t width = channels_last && packs && target.channels % pack_size == 0 ? pack_size : 1;
  const int64_t all_planes = target.batch * target.channels;
  const auto threads_of = [&](int64_t planes) {  // of one segment of rows
    return (channels_last ? target.batch : kit::ceil_div(all_planes, planes)) * (row / width);
  };
  const auto slots_of = [&](int64_t planes) {
    return resident_blocks(static_cast<int>(width), static_cast<int>(planes)) * kit::threads_per_block;
  };
  int64_t together = channels_last ? 1 : max_planes;
  if (2 * all_planes < together || threads_of(together) * target.height < slots_of(together)) together = 1;
  const int64_t threads = threads_of(together);
  const int64_t rows = kit::rows_per_part(target.height, threads, slots_of(together), overhead, 1, max_rows);
  const int64_t segments = target.height == 0 ? 0 : kit::ceil_div(target.height, rows);
  const Parts parts{threads * segments, row / width, segments, rows,
                    channels_last ? target.channels / width : target.channels};
  return {kit::grid_stride_launch(parts.count), parts, static_cast<int>(width), static_cast<int>(together)};
}

// In a tile each thread computes a patch of adjacent columns of several planes. With 16-byte accesses both numbers are
// 16 bytes of the type of sums; larger patches would spill. Without them forward writes pairs of columns; backward,
// which reads more than it writes, takes single columns of as many planes as 16 bytes of shared memory hold.
template <class A>
inline constexpr int tile_columns = 16 / sizeof(A);

template <class A>
constexpr int tile_planes(int columns, int64_t element_bytes) {
  return columns > 1 ? tile_columns<A> : static_cast<int>(16 / element_bytes);
}

// The columns of the input that columns of the output read, and the reverse.
template <class A>
CPPCUDA_HOST_DEVICE Range<int> inputs_of(const Axis<A, int>& x, const Range<int>& outputs) {
  return {x.tap(outputs.first).lower, x.tap(outputs.last - 1).upper + 1};
}
template <class A>
CPPCUDA_HOST_DEVICE Range<int> outputs_of(const Axis<A, int>& x, const Range<int>& inputs) {
  return {x.outputs_of(inputs.first).first, x.outputs_of(inputs.last - 1).last};
}

// The same range, extended to whole packs.
CPPCUDA_HOST_DEVICE Range<int> in_packs(const Range<int>& columns, int pack) {
  return {columns.first / pack * pack, kit::round_up(columns.last, pack)};
}

// XOR swizzle: the place of column x of a row in shared memory. Columns a multiple of 128 bytes apart would hit the
// same bank, so each block of 128 bytes is permuted by its index.
struct Banks {
  int shift, mask;
  CPPCUDA_HOST_DEVICE int operator()(int x) const { return x ^ (x >> shift & mask); }
};

// step: the distance of the columns that neighbouring threads read at once. pack: the columns that they write at once.
inline Banks banks_of(int step, int pack, int column_bytes) {
  const int block = 128 / column_bytes, power = std::max(step & -step, pack);
  const auto log2 = [](int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1; };
  return {std::max(log2(block), log2(power)), std::min(block, power) - 1};
}

// A block computes a tile: some rows of some strips of some groups of planes.
struct Tiles {
  kit::LaunchShape shape;
  Parts parts;  // the tiles: blocks of groups stand for images, and blocks of strips for strips
  int64_t all_groups;
  int all_strips;      // of a row
  int width;           // columns of a strip
  bool packs;          // whether the source is read in packs
  int groups, strips;  // of a tile
  int pitch;           // of a group's row in shared memory, in columns
  Banks banks;         // where these are
  int together;        // the number of source columns whose position and weight a thread keeps per column, in backward

  // The part of a thread. Threads past the end get the last part, and do not store it.
  struct ThreadPart {
    Parts::Part part;
    bool exists;
  };
  CPPCUDA_HOST_DEVICE ThreadPart thread_part(const Parts::Part& tile, int group, int strip) const {
    const int64_t image = tile.image * groups + group, of_row = tile.strip * strips + strip;
    const bool exists = group < groups && image < all_groups && of_row < all_strips;
    return {{image < all_groups ? image : all_groups - 1, tile.row, of_row < all_strips ? of_row : all_strips - 1},
            exists};
  }

  CPPCUDA_HOST_DEVICE Range<int> columns(const Parts::Part& tile) const {
    const int begin = static_cast<int>(tile.strip) * strips, end = begin + strips;
    return {begin * width, (end < all_strips ? end : all_strips) * width};
  }
};

// Whether every column of the output lies inside the input. A given scale can lead outside.
template <class A>
bool ends_inside(const Axis<A>& x) {
  return x.source(x.out - 1) < static_cast<A>(x.in);
}

// Whether at most columns_together columns of the output read a column of the input: they are half a column apart or
// more.
template <class A>
bool has_few_readers(const Axis<A>& x) {
  return x.scale >= A(0.5) && ends_inside(x);
}

// packs: whether rows of the source can be read in accesses of 16 bytes. The target is aligned to 16 bytes.
// resident_blocks(packs, threads, shared_bytes): the number of blocks that the device holds at once. Returns nothing if
// a tile would be too small or too wide, or if there would be too few tiles.
template <class A, class ResidentBlocks>
std::optional<Tiles> tile_launch(const ImageSizes& target, const Axis<A>& x, int64_t element_bytes, bool packs,
                                 bool backward, ResidentBlocks resident_blocks) {
  // In this order: the shared memory that every GPU has for three blocks per SM; the width up to which float32 resolves
  // positions to a sixteenth; the number of packs with which a warp writes to at most two places of each plane. On an
  // H100 (docs/benchmarks) half and 1.4 times the bytes, and half and twice the packs, changed no time by 1 %.
  constexpr int64_t max_bytes = 20 << 10, max_columns = 1 << 20, min_packs = 16;
  constexpr int64_t min_rows = 4;
  // The set-up of a tile, and the rows of the source that the next one reads, too, in rows. The set-up of backward is
  // 1,640 instructions, and a row of its source 375 (SASS for sm_90). From 0 to 12 the times on an H100 were the same.
  constexpr int64_t overhead = 3;
  if (std::max(x.in, x.out) > max_columns || (backward && !ends_inside(x))) return std::nullopt;
  // The columns of the source, and the number of them that contribute to a column of the target.
  const int64_t source_width = backward ? x.out : x.in;
  const double ratio = backward ? 1 / static_cast<double>(x.scale) : static_cast<double>(x.scale);
  // Otherwise forward would read columns that no thread needs, and backward would sum more columns than it reads.
  if (ratio > (backward ? 16 : 2)) return std::nullopt;
  const bool few_columns = !backward || has_few_readers(x);
  packs = packs && few_columns && target.width % tile_columns<A> == 0 && target.width >= min_packs * tile_columns<A>;
  const int width = packs ? tile_columns<A> : backward ? 1 : 2, planes = tile_planes<A>(width, element_bytes);
  if (target.width % width != 0) return std::nullopt;
  const int64_t all_planes = target.batch * target.channels;
  if (target.width == 0 || 2 * all_planes < planes) return std::nullopt;
  const int64_t all_strips = target.width / width, all_groups = kit::ceil_div(all_planes, int64_t{planes});
  const int64_t column_bytes = planes * element_bytes;
  const auto pitch_of = [&](int64_t strips) {
    // One more column on both sides, for rounding, and whole packs at both ends.
    const double columns =
        static_cast<double>(strips * width + 1) * ratio + static_cast<double>(4 + 32 / element_bytes);
    const int most = static_cast<int>(std::min(columns, static_cast<double>(source_width)));
    // Half a block more, for two groups in one access.
    const int block = 128 / static_cast<int>(column_bytes);
    return kit::round_up(most, block) + block / 2;
  };
  int64_t max_strips = kit::threads_per_block;
  while (pitch_of(std::min(max_strips, all_strips)) * column_bytes > max_bytes) max_strips /= 2;
  // A multiple of the number of threads that shared memory serves together, so that they belong to one group.
  const int64_t strips = kit::round_up(kit::ceil_div(all_strips, kit::ceil_div(all_strips, max_strips)), int64_t{8});
  const int64_t row_tiles = kit::ceil_div(all_strips, strips);
  const int pitch = pitch_of(strips);
  const int64_t groups = std::min({kit::threads_per_block / strips, max_bytes / (pitch * column_bytes), all_groups});
  if (groups * strips < kit::threads_per_block / 4) return std::nullopt;
  const auto threads = static_cast<unsigned>(kit::round_up(groups * strips, int64_t{32}));
  const auto shared_bytes = static_cast<unsigned>((groups * pitch + 1) * column_bytes);
  const int64_t slots = resident_blocks(packs, threads, shared_bytes);
  const int64_t segment_tiles = kit::ceil_div(all_groups, groups) * row_tiles;
  const int64_t rows = kit::rows_per_part(target.height, segment_tiles, slots, overhead, min_rows, max_rows);
  const int64_t segments = target.height == 0 ? 0 : kit::ceil_div(target.height, rows);
  const Parts parts{segment_tiles * segments, row_tiles, segments, rows, target.channels};
  if (2 * parts.count < slots) return std::nullopt;
  const int step = std::max(1, static_cast<int>(std::lround(width * ratio)));
  return Tiles{{kit::grid_stride_launch(parts.count, 1).blocks, threads, shared_bytes},
               parts,
               all_groups,
               static_cast<int>(all_strips),
               width,
               packs,
               static_cast<int>(groups),
               static_cast<int>(strips),
               pitch,
               banks_of(step, packs ? static_cast<int>(16 / element_bytes) : 1, static_cast<int>(column_bytes)),
               few_columns ? columns_together : 2 * columns_together};
}

}  // namespace cppcuda::ops::upsample_bilinear2d
