#include <cppcuda/cppcuda.h>

#include <cmath>
#include <set>

#include "ops/upsample_bilinear2d/cuda/launch.h"
#include "ops/upsample_bilinear2d/math.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using namespace cppcuda::ops::upsample_bilinear2d;
using Scale = std::optional<double>;

TEST(Upsample, ScalesAreThoseOfTorch) {
  const Tensor x = at::randn({2, 3, 5, 7}, at::kDouble);
  EXPECT_TRUE(close(cppcuda::upsample_bilinear2d(x, {7, 5}, "half_pixel", 1.5, 0.75),
                    at::upsample_bilinear2d(x, {7, 5}, false, 1.5, 0.75), 1e-13));
  EXPECT_TRUE(close(cppcuda::upsample_bilinear2d(x, {7, 5}, "half_pixel", std::nullopt, 0.75),
                    at::upsample_bilinear2d(x, {7, 5}, false, std::nullopt, 0.75), 1e-13));
  EXPECT_TRUE(close(cppcuda::upsample_bilinear2d(x, {7, 5}, "align_corners", 1.5, 0.75),
                    at::upsample_bilinear2d(x, {7, 5}, true), 1e-13));
}

// at::upsample_bilinear2d, whose third argument is a bool, is also a candidate for the unqualified calls.
TEST(Upsample, UnqualifiedCallsAreOurs) {
  using namespace cppcuda;
  const Tensor x = at::rand({1, 2, 4, 5});
  for (const char* mode : {"half_pixel", "align_corners", "asymmetric"}) {
    const Tensor expected = cppcuda::upsample_bilinear2d(x, {7, 7}, std::string_view(mode));
    EXPECT_TRUE(at::equal(upsample_bilinear2d(x, {7, 7}, mode), expected)) << mode;
  }
  EXPECT_TRUE(close(upsample_bilinear2d(x, {7, 7}, "half_pixel"), at::upsample_bilinear2d(x, {7, 7}, false), 1e-6));
  EXPECT_TRUE(close(upsample_bilinear2d(x, {7, 7}, "half_pixel", 1.5, 1.25),
                    at::upsample_bilinear2d(x, {7, 7}, false, 1.5, 1.25), 1e-6));
}

// Compares the outputs that read each pixel with a search through all outputs, so that any rounding error shows.
template <class A>
void check_axis(const Axis<A>& axis) {
  std::vector<Range<>> expected(axis.in, {axis.out, 0});
  for (int64_t o = 0; o < axis.out; ++o) {
    const Tap<A> tap = axis.tap(o);
    ASSERT_TRUE(0 <= tap.lower && tap.lower <= tap.upper && tap.upper <= tap.lower + 1 && tap.upper < axis.in) << o;
    ASSERT_TRUE(tap.lower_weight > 0 && (tap.upper_weight > 0) == (tap.lower < tap.upper)) << o;
    ASSERT_EQ(tap.lower_weight + tap.upper_weight, A(1)) << o;
    for (const int64_t i : {tap.lower, tap.upper}) {
      expected[i].first = std::min(expected[i].first, o);
      expected[i].last = o + 1;
    }
  }
  for (int64_t i = 0; i < axis.in; ++i) {
    const Range<> found = axis.outputs_of(i);
    if (expected[i].first > expected[i].last) {
      EXPECT_EQ(found.first, found.last) << i;
    } else {
      EXPECT_EQ(found.first, expected[i].first) << i;
      EXPECT_EQ(found.last, expected[i].last) << i;
    }
  }
}

TEST(UpsampleAxis, OutputsOfAPixelAreThoseThatReadIt) {
  const std::vector<int64_t> sizes{1, 2, 3, 4, 5, 7, 8, 10, 31, 64, 100, 333, 1000, 7919};
  for (const Mode mode : {Mode::half_pixel, Mode::align_corners, Mode::asymmetric}) {
    for (const int64_t in : sizes) {
      for (const int64_t out : sizes) {
        for (const Scale scale : {Scale(), Scale(2.0), Scale(0.3), Scale(1.1), Scale(1e-300), Scale(1e300)}) {
          SCOPED_TRACE(::testing::Message()
                       << static_cast<int>(mode) << ": " << in << " -> " << out << " by " << scale.value_or(0));
          check_axis(make_axis<float>(mode, in, out, scale));
          check_axis(make_axis<double>(mode, in, out, scale));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(UpsampleAxis, HoldsWhereFloatsAreSparse) {
  for (const Mode mode : {Mode::half_pixel, Mode::align_corners, Mode::asymmetric}) {
    const int64_t many = (int64_t{1} << 24) + 3001;
    const auto axis = make_axis<float>(mode, many, many + 1001, std::nullopt);
    int64_t before = 0;
    for (int64_t o = many - 5000; o < axis.out; ++o) {
      const auto tap = axis.tap(o);
      ASSERT_TRUE(before <= tap.lower && tap.lower <= tap.upper && tap.upper < axis.in) << o;
      before = tap.lower;
      for (const int64_t i : {tap.lower, tap.upper}) {
        const Range<> range = axis.outputs_of(i);
        ASSERT_TRUE(range.first <= o && o < range.last) << o << ", pixel " << i;
      }
    }
  }
}

// Blocks that a device holds at once, of any kernel.
constexpr int64_t resident = 400;
constexpr auto blocks_of_strips = [](int, int) { return resident; };
constexpr auto blocks_of_tiles = [](bool, unsigned, unsigned) { return resident; };

// Every value of the target belongs to exactly one part.
TEST(ImageLaunch, EveryValueIsWrittenOnce) {
  for (const int64_t channels : {1, 3, 8, 9, 24}) {
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {5, 8}, {37, 50}, {130, 256}, {700, 96}}) {
      for (const bool channels_last : {false, true}) {
        for (const bool packs : {false, true}) {
          for (const int planes : {1, 8}) {
            const ImageSizes target{2, channels, height, width};
            const auto [shape, parts, n, k] = image_launch(target, 4, channels_last, packs, planes, blocks_of_strips);
            EXPECT_TRUE(n == 1 || (packs && channels_last && channels % n == 0));
            EXPECT_TRUE(k == 1 || (k == planes && !channels_last));
            EXPECT_TRUE((int64_t{shape.blocks} - 1) * shape.threads < parts.count && shape.blocks > 0);
            std::vector<int> count(2 * channels * height * width);
            for (int64_t index = 0; index < parts.count; ++index) {
              const auto [image, first_row, strip] = parts[index];
              for (int64_t y = first_row; y < std::min(first_row + parts.segment_rows, height); ++y) {
                if (channels_last) {
                  for (int i = 0; i < n; ++i) ++count[(image * height + y) * width * channels + strip * n + i];
                  continue;
                }
                for (int64_t plane = image * k; plane < std::min((image + 1) * k, 2 * channels); ++plane)
                  ++count[(plane * height + y) * width + strip];
              }
            }
            EXPECT_EQ(std::count(count.begin(), count.end(), 1), std::ssize(count)) << channels << ", " << height;
          }
        }
      }
    }
  }
}

TEST(ImageLaunch, HoldsForAnySize) {
  for (const int64_t width : {int64_t{1} << 16, int64_t{1} << 31, int64_t{1} << 40}) {
    for (const int64_t channels : {1, 3, 4, 8, 1 << 10}) {
      const auto [shape, parts, n, k] = image_launch({1, channels, 100, width}, 2, false, true, 8, blocks_of_strips);
      EXPECT_EQ(n, 1);
      EXPECT_EQ(k, channels < 4 ? 1 : 8);
      EXPECT_EQ(parts.count, (channels + k - 1) / k * parts.segments.value() * width);
      EXPECT_EQ(parts.segments.value(), (100 + parts.segment_rows - 1) / parts.segment_rows);
      EXPECT_LE(shape.blocks, (1u << 31) - 1);
      const auto last = parts[parts.count - 1];
      EXPECT_EQ(last.image, (channels + k - 1) / k - 1);
      EXPECT_EQ(last.strip, width - 1);
      EXPECT_EQ(last.row, (parts.segments.value() - 1) * parts.segment_rows);
    }
  }
}

// Small targets have as many threads as values.
TEST(ImageLaunch, SmallTargets) {
  const auto [shape, parts, n, k] = image_launch({1, 32, 32, 32}, 4, false, true, 8, blocks_of_strips);
  EXPECT_EQ(parts.count, 32 * 32 * 32);
  EXPECT_TRUE(n == 1 && k == 1);
}

TEST(UpsampleAxis, FewReadersAreAtMostColumnsTogether) {
  int few = 0;
  for (const Mode mode : {Mode::half_pixel, Mode::align_corners, Mode::asymmetric}) {
    for (const int64_t in : {1, 2, 3, 5, 8, 64, 100, 333, 1000, 7919}) {
      for (const int64_t out : {1, 2, 3, 5, 9, 16, 127, 128, 129, 199, 666, 1999, 2001, 15838}) {
        for (const Scale scale : {Scale(), Scale(2.0), Scale(0.3), Scale(1.99), Scale(1e-300), Scale(1e300)}) {
          const auto axis = make_axis<float>(mode, in, out, scale);
          if (!has_few_readers(axis)) continue;
          ++few;
          for (int64_t i = 0; i < in; ++i) {
            const auto outputs = axis.outputs_of(i);
            ASSERT_LE(outputs.last - outputs.first, columns_together)
                << static_cast<int>(mode) << ": " << in << " -> " << out << " by " << scale.value_or(0) << ", " << i;
          }
        }
      }
    }
  }
  EXPECT_GT(few, 500);
}

// Every value of the target belongs to exactly one thread of one tile, and what it reads is in the tile's window.
template <class A>
void check_tiles(const Axis<A>& x, const ImageSizes& target, int64_t element_bytes, bool packs, bool backward) {
  const auto tiles = tile_launch(target, x, element_bytes, packs, backward, blocks_of_tiles);
  ASSERT_TRUE(tiles);
  EXPECT_TRUE(packs || !tiles->packs);
  const int columns = tiles->width, planes = tile_planes<A>(columns, element_bytes);
  EXPECT_EQ(columns, tiles->packs ? tile_columns<A> : backward ? 1 : 2);
  EXPECT_LE(tiles->shape.threads, cppcuda::kit::threads_per_block);
  EXPECT_LE(tiles->groups * tiles->strips, tiles->shape.threads);
  const int column_bytes = planes * static_cast<int>(element_bytes);
  EXPECT_EQ(tiles->shape.shared_bytes, (tiles->groups * tiles->pitch + 1) * column_bytes);
  EXPECT_LE(tiles->shape.shared_bytes, (20 << 10) + 16);
  const auto axis = x.template with_index<int>();
  const int source_width = static_cast<int>(backward ? x.out : x.in);
  const auto needed = [&](const Range<int>& of) { return backward ? outputs_of(axis, of) : inputs_of(axis, of); };
  std::vector<int> count(target.batch * target.channels * target.height * target.width / columns);
  for (int64_t index = 0; index < tiles->parts.count; ++index) {
    const auto tile = tiles->parts[index];
    auto window = needed(tiles->columns(tile));
    ASSERT_TRUE(0 <= window.first && window.last <= source_width);
    ASSERT_TRUE(window.first < window.last || (backward && window.first == window.last));
    if (packs) window = in_packs(window, static_cast<int>(16 / element_bytes));
    std::vector<int> places(tiles->pitch);
    for (int i = 0; i < window.last - window.first; ++i) {
      ASSERT_LT(tiles->banks(i), tiles->pitch);
      ASSERT_EQ(++places[tiles->banks(i)], 1);
    }
    for (int thread = 0; thread < static_cast<int>(tiles->shape.threads); ++thread) {
      const auto [part, exists] = tiles->thread_part(tile, thread / tiles->strips, thread % tiles->strips);
      for (int n = 0; n < columns; ++n) {
        const int column = static_cast<int>(part.strip) * columns + n;
        const auto of_column = needed({column, column + 1});
        ASSERT_TRUE(of_column.first == of_column.last ||
                    (window.first <= of_column.first && of_column.last <= window.last));
        ASSERT_TRUE(!tiles->packs || !backward || of_column.last - of_column.first <= tiles->together);
      }
      if (!exists) continue;
      for (int64_t y = part.row; y < std::min(part.row + tiles->parts.segment_rows, target.height); ++y) {
        for (int64_t plane = part.image * planes;
             plane < std::min((part.image + 1) * planes, target.batch * target.channels); ++plane) {
          ++count[(plane * target.height + y) * (target.width / columns) + part.strip];
        }
      }
    }
  }
  EXPECT_EQ(std::count(count.begin(), count.end(), 1), std::ssize(count));
}

TEST(TileLaunch, EveryValueIsWrittenOnceAndReadsItsWindow) {
  for (const Mode mode : {Mode::half_pixel, Mode::align_corners, Mode::asymmetric}) {
    for (const auto& [in, out, height] : {std::tuple<int64_t, int64_t, int64_t>{64, 128, 128},
                                          {128, 128, 64},
                                          {8, 520, 300},
                                          {504, 256, 129},
                                          {1024, 2056, 40},
                                          {640, 600, 71},
                                          {1032, 3000, 33},
                                          {133, 532, 70},
                                          {37, 590, 150},
                                          {13, 26, 257},
                                          {4096, 4096, 16}}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(mode) << ": " << in << " -> " << out);
      const auto axis = make_axis<float>(mode, in, out, {});
      const auto in_double = make_axis<double>(mode, in, out, {});
      const auto check = [&](const ImageSizes& of_float, const ImageSizes& of_double, bool backward) {
        for (const bool packs : {false, true}) {
          if (packs && (in % 8 != 0 || out % 8 != 0)) continue;
          for (const int64_t element_bytes : {2, 4}) check_tiles(axis, of_float, element_bytes, packs, backward);
          check_tiles(in_double, of_double, 8, packs, backward);
        }
      };
      check({3, 101, height, out}, {2, 51, height, out}, false);
      if (16 * axis.scale < 1) {
        EXPECT_FALSE(tile_launch({3, 101, height, in}, axis, 2, true, true, blocks_of_tiles));
      } else {
        check({3, 101, height, in}, {2, 51, height, in}, true);
      }
    }
  }
}

// A scale factor may disagree with the sizes, so that there are positions beyond the last column, or columns that
// nothing reads.
TEST(TileLaunch, AnyScale) {
  const auto axis = [](int64_t in, int64_t out, double scale) {
    return make_axis<float>(Mode::half_pixel, in, out, scale);
  };
  for (const bool packs : {false, true}) {
    for (const double scale : {0.5, 0.9, 1.7, 2.0, 1e300}) {
      SCOPED_TRACE(scale);
      check_tiles(axis(256, 512, scale), {8, 64, 128, 512}, 2, packs, false);
    }
    for (const double scale : {0.5, 1.0, 1.7, 3.9}) {
      SCOPED_TRACE(scale);
      check_tiles(axis(1024, 256, scale), {8, 64, 128, 1024}, 2, packs, true);
    }
    for (const double scale : {0.4, 1e-300}) {
      EXPECT_FALSE(tile_launch({8, 64, 128, 512}, axis(256, 512, scale), 2, packs, false, blocks_of_tiles));
    }
    for (const double scale : {0.9, 16.1, 1e300}) {
      EXPECT_FALSE(tile_launch({8, 64, 128, 256}, axis(256, 512, scale), 2, packs, true, blocks_of_tiles));
    }
  }
}

TEST(TileLaunch, NoneWhereTilesWouldBeSmallOrFewOrWide) {
  const auto axis = [](int64_t in, int64_t out) { return make_axis<float>(Mode::half_pixel, in, out, {}); };
  const auto launch = [&](const ImageSizes& target, int64_t in, bool packs = true) {
    return tile_launch(target, axis(in, target.width), 2, packs, false, blocks_of_tiles);
  };
  EXPECT_FALSE(launch({1, 4, 1 << 14, 64}, 32));  // one group of planes with 16 strips: the tiles are too small
  EXPECT_TRUE(launch({1, 8, 1 << 14, 64}, 32));
  EXPECT_FALSE(launch({1, 64, 64, 64}, 32));    // too few tiles
  EXPECT_FALSE(launch({64, 64, 64, 64}, 136));  // scales down by more than two
  EXPECT_FALSE(launch({1, 64, 64, 1 << 21}, 1 << 20));
  EXPECT_TRUE(launch({1, 64, 64, 1 << 20}, 1 << 19));
  EXPECT_FALSE(launch({0, 64, 64, 64}, 32));
  EXPECT_FALSE(launch({1, 64, 64, 0}, 32));
  EXPECT_FALSE(launch({1, 1, 1 << 12, 1 << 12}, 1 << 11));  // too few planes
  EXPECT_TRUE(launch({1, 2, 1 << 12, 1 << 12}, 1 << 11));
  EXPECT_FALSE(launch({1, 64, 1 << 12, 63}, 32, false));  // an odd width
  EXPECT_TRUE(launch({1, 64, 1 << 12, 62}, 31, false));
  EXPECT_TRUE(launch({64, 64, 64, 64}, 32)->packs);
  EXPECT_FALSE(launch({64, 64, 64, 60}, 30)->packs);  // too few vector accesses
}

// Threads that shared memory serves together access different banks, for each of these distances between their columns
// and for any first column.
TEST(TileLaunch, BanksOfColumns) {
  for (const int column_bytes : {8, 16}) {
    const int lanes = 128 / column_bytes;
    for (const int step : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      if (step > lanes) continue;
      const auto banks = banks_of(step, 1, column_bytes);
      for (int first = 0; first < 100; ++first) {
        std::set<int> found;
        for (int i = 0; i < lanes; ++i) found.insert(banks(first + i * step) % lanes);
        EXPECT_EQ(std::ssize(found), lanes) << column_bytes << ", " << step << ", " << first;
      }
    }
  }
}

TEST(TileLaunch, ManyPlanes) {
  const auto axis = make_axis<float>(Mode::half_pixel, 2048, 4096, {});
  const auto tiles = tile_launch({int64_t{1} << 16, 1 << 12, 4096, 4096}, axis, 2, true, false, blocks_of_tiles);
  ASSERT_TRUE(tiles);
  EXPECT_EQ(tiles->all_groups, int64_t{1} << 26);
  const auto last = tiles->parts[tiles->parts.count - 1];
  const auto [part, exists] = tiles->thread_part(last, tiles->groups - 1, tiles->strips - 1);
  EXPECT_TRUE(exists);
  EXPECT_EQ(part.image, tiles->all_groups - 1);
  EXPECT_EQ(part.strip, 4096 / 4 - 1);
  EXPECT_EQ(part.row, 4096 - tiles->parts.segment_rows);
}

}  // namespace
