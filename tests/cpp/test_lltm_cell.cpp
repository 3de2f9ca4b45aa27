#include <gtest/gtest.h>

#include <cmath>

#include "ops/lltm_cell/cuda/launch.h"
#include "ops/lltm_cell/math.h"

namespace {

TEST(LltmCellMath, NothingOverflows) {
  using cppcuda::ops::lltm_cell::cell;
  using cppcuda::ops::lltm_cell::cell_backward;
  for (const float x : {-1e38f, -1e4f, -100.f, -1e-30f, 0.f, 1e-30f, 89.f, 100.f, 1e4f}) {
    for (const float y : {-1e4f, 0.f, 1e4f}) {
      const auto state = cell(y, y, x, 0.5f);
      EXPECT_TRUE(std::isfinite(state.hy) && std::isfinite(state.cy)) << x;
      const auto d = cell_backward<true, true>(1.f, 1.f, y, y, x, 0.5f);
      EXPECT_TRUE(std::isfinite(d.g0) && std::isfinite(d.g1) && std::isfinite(d.g2) && std::isfinite(d.cx)) << x;
    }
  }
  EXPECT_EQ(cppcuda::ops::lltm_cell::elu_slope(0.f), 1.f);
}

using cppcuda::ops::lltm_cell::CellSizes;
using cppcuda::ops::lltm_cell::is_small_on_cuda;

TEST(SmallCell, WhichCellsAreSmall) {
  EXPECT_TRUE(is_small_on_cuda({16, 32, 128}, 4));
  EXPECT_TRUE(is_small_on_cuda({1, 1, 1}, 8));
  EXPECT_TRUE(is_small_on_cuda({4, 0, 8}, 4));
  EXPECT_FALSE(is_small_on_cuda({0, 4, 8}, 4));
  EXPECT_FALSE(is_small_on_cuda({4, 8, 0}, 4));
  EXPECT_FALSE(is_small_on_cuda({256, 256, 1024}, 4));
  constexpr int64_t huge = int64_t{1} << 40;
  for (const CellSizes& sizes : {CellSizes{huge, 1, 1}, {1, huge, 1}, {1, 1, huge}, {huge, huge, huge}}) {
    EXPECT_FALSE(is_small_on_cuda(sizes, 4));
  }
}

TEST(SmallCell, LaunchesAreValidForAllSmallCells) {
  for (const int64_t rows : {1, 2, 16, 33, 512}) {
    for (const int64_t inputs : {0, 1, 32, 1000}) {
      for (const int64_t size : {1, 8, 128, 1000}) {
        for (const int64_t sum_bytes : {4, 8}) {
          const CellSizes sizes{rows, inputs, size};
          if (!is_small_on_cuda(sizes, sum_bytes)) continue;
          const int pack = sum_bytes == 4 ? 8 : 2, width = size % pack == 0 && inputs % pack == 0 ? pack : 1;
          const auto forward = small_forward_launch(sizes), backward = small_backward_launch(sizes, sum_bytes, width);
          // Each element of the state has one group of lanes.
          EXPECT_GE(int64_t{forward.blocks} * forward.threads, rows * size * cppcuda::ops::lltm_cell::small_lanes);
          EXPECT_LT((int64_t{forward.blocks} - 1) * forward.threads,
                    rows * size * cppcuda::ops::lltm_cell::small_lanes);
          EXPECT_GT(backward.shared_bytes, rows * 3 * size * sum_bytes);
          EXPECT_LE(backward.shared_bytes, 48u << 10);
          EXPECT_TRUE(backward.blocks >= 1 && backward.blocks <= 64);
          EXPECT_LT(rows * 3 * size * (size + inputs), int64_t{1} << 31);  // indices have 32 bits
        }
      }
    }
  }
}

}  // namespace
