#include <cppcuda/cppcuda.h>

#include <cmath>

#include "testing.h"

namespace {

using cppcuda::HashGridConfig;
using cppcuda::testing::error_of;

TEST(HashGrid, NumbersOfParameters) {
  EXPECT_EQ(cppcuda::hash_grid_parameters(3), 2 * (4096 + 32768 + 262144 + 13 * 524288));
  // The scale of the third level is just below 31 in float32.
  const HashGridConfig config{.n_levels = 3, .n_features_per_level = 1, .per_level_scale = std::sqrt(2.0)};
  EXPECT_EQ(cppcuda::hash_grid_parameters(3, config), 16 * 16 * 16 + (23 * 23 * 23 + 7) / 8 * 8 + 32 * 32 * 32);
}

TEST(HashGrid, Errors) {
  EXPECT_EQ(error_of([] { cppcuda::hash_grid(at::zeros({8}), at::zeros({6, 3}), {.n_levels = 0}); }),
            "hash_grid: n_levels must be from 1 to 128, got 0");
  EXPECT_EQ(error_of([] { cppcuda::hash_grid_parameters(5); }),
            "hash_grid_parameters: n_input_dims must be 2, 3 or 4, got 5");
  EXPECT_EQ(error_of([] { cppcuda::hash_grid_parameters(3, {.log2_hashmap_size = 31}); }),
            "hash_grid_parameters: log2_hashmap_size must be from 1 to 30, got 31");
}

}  // namespace
