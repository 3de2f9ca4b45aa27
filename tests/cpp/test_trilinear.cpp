#include <cppcuda/cppcuda.h>

#include <map>
#include <set>

#include "ops/trilinear/cuda/launch.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::error_of;
using cppcuda::testing::on_device;

TEST(Trilinear, CornersAreReturnedAsTheyAre) {
  const Tensor feats = at::randn({8, 8, 3}, at::kDouble);
  std::vector<Tensor> corners;
  for (int64_t c = 0; c < 8; ++c) corners.push_back(at::tensor({c >> 2, c >> 1 & 1, c & 1}, at::kDouble) * 2 - 1);
  const Tensor out = cppcuda::trilinear(feats, at::stack(corners));
  for (int64_t c = 0; c < 8; ++c) EXPECT_TRUE(at::equal(out[c], feats[c][c])) << "corner " << c;
}

#ifndef CPPCUDA_CUDA
TEST(Trilinear, SaysThatItWasBuiltWithoutCuda) {
  EXPECT_EQ(error_of([] { cppcuda::trilinear(on_device(at::kCUDA, {6, 8, 10}), on_device(at::kCUDA, {6, 3})); }),
            "trilinear: feats must be on cpu, got cuda:0: this cppcuda was built without CUDA; build it again with "
            "CPPCUDA_WITH_CUDA=ON");
}
#endif

using cppcuda::kit::threads_per_block;
using cppcuda::ops::trilinear::Access;
using cppcuda::ops::trilinear::backward_direct_bytes;
using cppcuda::ops::trilinear::forward_direct_bytes;
using cppcuda::ops::trilinear::is_whole;
using cppcuda::ops::trilinear::row_launch;
using cppcuda::ops::trilinear::RowLaunch;
using cppcuda::ops::trilinear::rows_per_thread;

// How often the kernels' loops over all blocks and threads write each value of the output.
std::vector<int> visits(const RowLaunch& launch, int64_t rows, int64_t features) {
  std::vector<int> count(rows * features);
  const auto& [access, shape, width, lane_bits, tile] = launch;
  const int lanes = 1 << lane_bits, tile_rows = tile.rows;
  for (int64_t block = 0; block < shape.blocks; ++block) {
    for (int64_t thread = 0; thread < shape.threads; ++thread) {
      if (access == Access::staged) {
        const int64_t warp = (block * shape.threads + thread) / 32,
                      step = shape.blocks * shape.threads / 32 * tile_rows;
        for (int64_t first = warp * tile_rows; first < rows; first += step) {
          const int64_t end = std::min<int64_t>(rows, first + tile_rows);
          for (int64_t row = first + thread % 32 / lanes; row < end; row += 32 / lanes) {
            for (int64_t f = thread % lanes * width; f < features; f += int64_t{lanes} * width) {
              for (int v = 0; v < width; ++v) ++count.at(row * features + f + v);
            }
          }
        }
        continue;
      }
      const int64_t rows_per_block = shape.threads / lanes;
      for (int64_t row = block * rows_per_block + thread / lanes; row < rows; row += shape.blocks * rows_per_block) {
        for (int64_t f = thread % lanes * width; f < features; f += int64_t{lanes} * width) {
          for (int i = 0; i < width; ++i) ++count.at(row * features + f + i);
        }
      }
    }
  }
  return count;
}

TEST(RowLaunch, EveryValueIsWrittenOnce) {
  for (const int64_t rows : {1, 2, 7, 31, 33, 256, 1000}) {
    for (const int64_t features : {1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 64, 100, 256}) {
      for (const int element_bytes : {2, 4, 8}) {
        for (const bool packs : {false, true}) {
          for (const bool dense : {false, true}) {
            for (const auto direct_bytes : {forward_direct_bytes, backward_direct_bytes}) {
              const auto launch = row_launch(rows, features, element_bytes, packs, dense, direct_bytes);
              const auto count = visits(launch, rows, features);
              EXPECT_EQ(std::count(count.begin(), count.end(), 1), rows * features)
                  << rows << " rows of " << features << ", " << element_bytes << packs << dense;
            }
          }
        }
      }
    }
  }
}

TEST(RowLaunch, ShortAndOddRowsAreStaged) {
  auto staged = [](int64_t features, int element_bytes, bool dense, int64_t direct_bytes = backward_direct_bytes) {
    return row_launch(100, features, element_bytes, /*packs=*/true, dense, direct_bytes).access == Access::staged &&
           !is_whole(features, element_bytes);
  };
  for (const int64_t features : {5, 7, 9, 63, 315}) EXPECT_TRUE(staged(features, 4, true)) << features;
  for (const int64_t features : {1, 4, 8, 12, 16, 64, 256}) EXPECT_FALSE(staged(features, 4, true)) << features;
  for (const int64_t features : {5, 6, 10, 12, 15}) EXPECT_TRUE(staged(features, 2, true)) << features;
  EXPECT_TRUE(staged(8, 4, true, forward_direct_bytes));
  EXPECT_FALSE(staged(16, 4, true, forward_direct_bytes));
  EXPECT_FALSE(staged(3, 4, false));
  EXPECT_FALSE(staged(317, 4, true));  // not even one row would fit into the memory of a warp
}

// When the threads of a warp read the next features of a corner, they read from different banks of 4 bytes.
TEST(RowLaunch, RowsOfATileAreInDifferentBanks) {
  for (int64_t features = 3; features < 300; ++features) {
    for (const int element_bytes : {2, 4, 8}) {
      const auto launch =
          row_launch(1000, features, element_bytes, /*packs=*/true, /*dense=*/true, forward_direct_bytes);
      if (launch.access != Access::staged || is_whole(features, element_bytes)) continue;
      const int lanes = 1 << launch.lane_bits, bytes = launch.width * element_bytes, at_once = 128 / std::max(bytes, 4);
      for (int begin = 0; begin < 32; begin += at_once) {
        std::map<int, std::set<int>> words;  // by bank
        for (int thread = begin; thread < begin + at_once; ++thread) {
          const int from = thread / lanes * launch.tile.row_step * 16 + thread % lanes * bytes;
          for (int byte = from; byte < from + bytes; ++byte) words[byte / 4 % 32].insert(byte / 4);
        }
        for (const auto& [bank, of_bank] : words) {
          ASSERT_EQ(of_bank.size(), 1u) << features << " of " << element_bytes << " bytes, bank " << bank;
        }
      }
    }
  }
}

TEST(RowLaunch, AThreadTakesRowsOfFewFeatures) {
  auto whole = [](int64_t features, int element_bytes, bool dense) {
    return row_launch(100, features, element_bytes, /*packs=*/true, dense, 0).access == Access::staged &&
           is_whole(features, element_bytes);
  };
  for (const int64_t features : {1, 2, 3, 4, 8}) EXPECT_TRUE(whole(features, 2, true)) << features;
  for (const int64_t features : {1, 2, 3, 4}) EXPECT_TRUE(whole(features, 4, true)) << features;
  for (const int64_t features : {1, 2}) EXPECT_TRUE(whole(features, 8, true)) << features;
  for (const int64_t features : {5, 8, 16}) EXPECT_FALSE(whole(features, 4, true)) << features;
  EXPECT_FALSE(whole(3, 4, false));
}

TEST(RowLaunch, HoldsForAnySize) {
  constexpr int64_t two31 = int64_t{1} << 31;
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{1} << 20, two31 - 1, two31, two31 + 1, int64_t{1} << 45}) {
    for (const int64_t features : {int64_t{1}, int64_t{3}, int64_t{32}, int64_t{33}, two31, int64_t{1} << 40}) {
      for (const int element_bytes : {2, 4, 8}) {
        for (const bool dense : {false, true}) {
          const auto [access, shape, width, lane_bits, tile] =
              row_launch(rows, features, element_bytes, true, dense, forward_direct_bytes);
          const bool staged = access == Access::staged;
          const int lanes = 1 << lane_bits, tile_rows = tile.rows;
          EXPECT_TRUE(lane_bits >= 0 && lanes <= 32) << lanes;  // a group lies in one warp
          EXPECT_TRUE(lanes == 1 || staged || lanes / 2 * width < features) << "fewer lanes would do";
          EXPECT_EQ(features % width, 0) << width;
          EXPECT_TRUE(width == 1 || width * element_bytes == 16 || (staged && width == 2)) << width;
          EXPECT_EQ(tile_rows > 0, staged);
          const bool whole = is_whole(features, element_bytes);
          const int64_t row_packs = features * element_bytes / 2;
          if (staged && !whole) {
            EXPECT_GE(tile.row_step, row_packs);
            EXPECT_EQ(tile.input_packs.value(), row_packs);
            EXPECT_EQ(tile.packs, tile_rows * tile.row_step);
          }
          EXPECT_EQ(shape.threads, unsigned{threads_per_block});
          EXPECT_EQ(shape.threads % lanes, 0u);
          EXPECT_LE(shape.blocks, (1u << 31) - 1);  // CUDA's limit
          EXPECT_LE(shape.shared_bytes, 48u << 10);
          EXPECT_EQ(shape.shared_bytes, threads_per_block / 32 * tile.packs * 16);
          if (staged && whole) {
            EXPECT_EQ(tile_rows, 32 * rows_per_thread(static_cast<int>(row_packs)));
            EXPECT_GE(tile.packs, tile_rows * row_packs);
          }
          // Indices within a tile have 32 bits.
          EXPECT_LT(tile_rows * 8 * (staged ? features : 0), two31);
          // The groups of all blocks start at rows 0, 1, 2, ... and step by the number of groups, so each row has
          // exactly one group if there are any. No block starts past the end.
          const int64_t rows_per_block = staged ? shape.threads / 32 * tile_rows : shape.threads / lanes;
          EXPECT_EQ(shape.blocks == 0, rows == 0);
          if (rows > 0) {
            EXPECT_LT((int64_t{shape.blocks} - 1) * rows_per_block, rows);
          }
        }
      }
    }
  }
}

}  // namespace
