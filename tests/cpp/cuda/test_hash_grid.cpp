#include "interpolation_testing.h"
#include "ops/hash_grid/layout.h"
#include "ops/hash_grid/op.h"

namespace {

using namespace cppcuda::testing;
namespace op = cppcuda::ops::hash_grid;

struct HashGrid {
  cppcuda::HashGridConfig config;

  std::vector<c10::SymInt> size(const Tensor& points) const { return {op::count_parameters(config, points.size(-1))}; }
  Tensor forward(const Tensor& params, const Tensor& points) const { return op::Forward::call(params, points, config); }
  auto backward(const Tensor& grad, const std::optional<Tensor>& params, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return op::Backward::call(grad, params, points, size(points), config, output_mask);
  }
  auto double_backward(const Tensor& grad, const std::optional<Tensor>& params, const Tensor& points,
                       const std::optional<Tensor>& grad_grad_params, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask, at::IntArrayRef order = {}) const {
    return op::DoubleBackward::call(grad, params, points, grad_grad_params, grad_grad_points, size(points), config,
                                    output_mask, order);
  }
};

// The first level is dense, the others are hashed.
HashGrid hash_grid(int64_t features, bool is_smooth = false) {
  return {{.n_levels = 3,
           .n_features_per_level = features,
           .log2_hashmap_size = 6,
           .base_resolution = 2,
           .per_level_scale = 2.0,
           .interpolation = is_smooth ? "Smoothstep" : "Linear"}};
}

Arguments arguments(const HashGrid& grid, at::IntArrayRef batch, int64_t rows, int64_t axes) {
  std::vector<int64_t> of_params = batch.vec(), of_points = batch.vec();
  of_params.push_back(op::count_parameters(grid.config, axes));
  of_points.insert(of_points.end(), {rows, axes});
  return with_gradients(grid, random(of_params), random(of_points, -0.2, 1.2));
}

class CudaHashGrid : public ::testing::TestWithParam<Dtypes> {
 protected:
  // Positions are up to eight times the coordinates.
  static Dtypes types() {
    Dtypes result = GetParam();
    result.tolerance *= 8;
    return result;
  }
};

TEST_P(CudaHashGrid, AnyNumberOfAxesAndFeatures) {
  for (const int64_t axes : {2, 3, 4}) {
    for (const int64_t features : {1, 2, 4, 8}) {
      SCOPED_TRACE(::testing::Message() << axes << " axes, " << features << " features");
      const HashGrid grid = hash_grid(features, /*is_smooth=*/features == 2);
      expect_close(grid, arguments(grid, {}, 21, axes), types());
    }
  }
}

// Threads take groups of levels, and store four levels at most at once. The last group may be smaller.
TEST_P(CudaHashGrid, AnyNumberOfLevels) {
  for (const int64_t levels : {1, 4, 5, 8, 10}) {
    for (const int64_t features : {1, 2, 4, 8}) {
      SCOPED_TRACE(::testing::Message() << levels << " levels of " << features << " features");
      HashGrid grid = hash_grid(features);
      grid.config.n_levels = levels;
      grid.config.per_level_scale = 1.2;
      expect_close(grid, arguments(grid, {}, 9, 2), types());
    }
  }
}

TEST_P(CudaHashGrid, AnyNumberOfRows) {
  for (const int64_t rows : {1, 2, 33, 257}) {
    SCOPED_TRACE(rows);
    const HashGrid grid = hash_grid(2);
    expect_close(grid, arguments(grid, {}, rows, 3), types());
  }
}

// Tables whose sizes are no powers of two, and the largest number of levels.
TEST_P(CudaHashGrid, ManyLevels) {
  HashGrid grid = hash_grid(1);
  grid.config = {.n_levels = 32,
                 .n_features_per_level = 1,
                 .log2_hashmap_size = 12,
                 .base_resolution = 3,
                 .per_level_scale = 1.05};
  expect_close(grid, arguments(grid, {}, 20, 2), types());
}

TEST_P(CudaHashGrid, AnyLayout) {
  for (const Layout layout : layouts) {
    for (const int64_t axes : {2, 3, 4}) {
      const HashGrid grid = hash_grid(1 << (axes - 1));
      expect_close(grid, arguments(grid, {2}, 5, axes), types(), layout);
    }
  }
}

using CudaHashGridLargeTables = CudaHashGrid;

// Tables of 8 MiB each, of which a launch takes two if there are many points. The second launch adds to what the first
// one has stored. The CPU computes the same positions in float32, and therefore the same cells.
TEST_P(CudaHashGridLargeTables, LaunchesInTurn) {
  HashGrid grid = hash_grid(2);
  grid.config = {.n_levels = 3,
                 .n_features_per_level = 2,
                 .log2_hashmap_size = 20,
                 .base_resolution = 1100,
                 .per_level_scale = 1.1};
  const Arguments a = arguments(grid, {}, 1 << 16, 2).map([](const Tensor& t) { return t.to(at::kFloat); });
  const auto gradients = [&](const Arguments& b) {
    auto all = to_vector(grid.double_backward(b.grad, b.table, b.points, b.grad_grad_table, b.grad_grad_points,
                                              c10::List<bool>({false, false, true})));
    all.push_back(std::get<1>(grid.backward(b.grad, b.table, b.points, c10::List<bool>({false, true}))));
    return all;
  };
  const auto actual = gradients(a.map([](const Tensor& t) { return on_cuda(t); })), expected = gradients(a);
  for (const size_t i : {2, 3}) {
    const double largest = expected[i].abs().max().item<double>();
    EXPECT_GT(largest, 1);
    EXPECT_LT((actual[i].cpu() - expected[i]).abs().max().item<double>(), 1e-5 * largest) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaHashGridLargeTables, ::testing::ValuesIn(all_dtypes + 1, all_dtypes + 2),
                         [](const auto& info) { return info.param.name; });

// Tables whose sizes are not powers of two, and points far outside.
TEST_P(CudaHashGrid, AnyConfiguration) {
  const auto number = [](int64_t least, int64_t most) { return at::randint(least, most + 1, {1}).item<int64_t>(); };
  for (int k = 0; k < 16; ++k) {
    const int64_t axes = 2 + k % 3, features = int64_t{1} << number(0, 3);
    HashGrid grid = hash_grid(features, k % 2 == 1);
    grid.config.n_levels = number(1, 4);
    grid.config.log2_hashmap_size = number(3, 12);
    grid.config.base_resolution = number(1, 7);
    grid.config.per_level_scale = 1 + static_cast<double>(number(0, 100)) / 100;
    SCOPED_TRACE(::testing::Message() << axes << " axes, " << grid.config.n_levels << " levels, " << features
                                      << " features, 2^" << grid.config.log2_hashmap_size << ", "
                                      << grid.config.base_resolution << ", " << grid.config.per_level_scale);
    Dtypes t = types();
    t.tolerance *= 8;  // larger positions
    const Tensor params = random({op::count_parameters(grid.config, axes)});
    expect_close(grid, with_gradients(grid, params, random({number(1, 90), axes}, -0.5, 1.5)), t, layouts[k % 5]);
  }
}

TEST_P(CudaHashGrid, NothingToDo) { expect_close(hash_grid(2), arguments(hash_grid(2), {}, 0, 3), types()); }

INSTANTIATE_TEST_SUITE_P(All, CudaHashGrid, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
