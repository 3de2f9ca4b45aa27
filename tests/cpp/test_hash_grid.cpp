#include <ATen/Parallel.h>
#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::HashGridConfig;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using torch::autograd::grad;

// Level by level and corner by corner, in float64, of params [P] and points [N, D].
Tensor reference(const Tensor& params, const Tensor& points, const HashGridConfig& config) {
  const int64_t primes[4] = {1, 2654435761, 805459861, 3674653429};
  const int64_t axes = points.size(1), bits = 0xffffffff;
  const Tensor table = params.to(at::kDouble).view({-1, config.n_features_per_level});
  std::vector<Tensor> columns;
  int64_t first_row = 0;
  for (int64_t l = 0; l < config.n_levels; ++l) {
    const float growth = std::exp2(static_cast<float>(l) * std::log2(static_cast<float>(config.per_level_scale)));
    volatile float product = growth * static_cast<float>(config.base_resolution);
    const float scale = product - 1;
    const auto resolution = static_cast<int64_t>(std::ceil(scale)) + 1;
    const int64_t max_rows = int64_t{1} << config.log2_hashmap_size;
    const auto vertices = static_cast<int64_t>(std::pow(resolution, axes));
    const int64_t rows = std::min((vertices + 7) / 8 * 8, max_rows);
    const Tensor position = points.to(at::kDouble) * scale + 0.5, floor = position.detach().floor();
    Tensor far = position - floor;
    if (config.interpolation == "Smoothstep") far = far * far * (3 - 2 * far);
    Tensor out;
    for (int64_t corner = 0; corner < 1 << axes; ++corner) {
      Tensor weight, row;
      int64_t stride = 1;
      for (int64_t d = 0; d < axes; ++d) {
        const bool is_far = corner >> d & 1;
        const Tensor factor = is_far ? far.select(1, d) : 1 - far.select(1, d);
        const Tensor part = (floor.select(1, d).to(at::kLong) + is_far) * (vertices > rows ? primes[d] : stride);
        weight = d == 0 ? factor : weight * factor;
        row = d == 0 ? part : vertices > rows ? row.bitwise_xor(part) : row + part;
        stride *= resolution;
      }
      row = row.bitwise_and(bits).remainder(rows) + first_row;
      const Tensor term = weight.unsqueeze(1) * table.index_select(0, row);
      out = corner == 0 ? term : out + term;
    }
    columns.push_back(out);
    first_row += rows;
  }
  return at::cat(columns, 1);
}

struct Sample {
  Tensor params, points;
};

// Points inside and outside [0, 1].
Sample sample(int64_t axes, int64_t points, const HashGridConfig& config) {
  return {at::randn({cppcuda::hash_grid_parameters(axes, config)}, at::kDouble),
          at::rand({points, axes}, at::kDouble) * 2 - 0.5};
}

// Dense and hashed levels.
HashGridConfig small(std::string_view interpolation, int64_t features) {
  return {.n_levels = 4,
          .n_features_per_level = features,
          .log2_hashmap_size = 8,
          .base_resolution = 3,
          .per_level_scale = 1.6,
          .interpolation = interpolation};
}

class HashGrids : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, const char*>> {};

TEST_P(HashGrids, ValuesAndDerivativesEqualPlainTorch) {
  const auto [axes, features, interpolation] = GetParam();
  at::manual_seed(0);
  const HashGridConfig config = small(interpolation, features);
  const Sample s = sample(axes, 100, config);
  const auto results = [&](auto f) {
    const Tensor params = s.params.detach().requires_grad_(), points = s.points.detach().requires_grad_();
    const Tensor out = f(params, points, config);
    auto first = grad({out.sin().sum()}, {params, points}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    const auto second = grad({first[0].pow(2).sum() + first[1].sin().sum()}, {params, points});
    first.insert(first.end(), second.begin(), second.end());
    first.push_back(out);
    return first;
  };
  const auto actual = results([](const auto&... args) { return cppcuda::hash_grid(args...); });
  const auto expected = results(reference);
  EXPECT_TRUE(actual.back().is_contiguous());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], 1e-9)) << "tensor " << i;
}

INSTANTIATE_TEST_SUITE_P(HashGrid, HashGrids,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::Values(1, 2, 4, 8),
                                            ::testing::Values("Linear", "Smoothstep")),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "d_" +
                                  std::to_string(std::get<1>(info.param)) + "_" + std::get<2>(info.param);
                         });

TEST(HashGrid, NumbersOfParameters) {
  EXPECT_EQ(cppcuda::hash_grid_parameters(3), 2 * (4096 + 32768 + 262144 + 13 * 524288));
  // The scale of the third level is just below 31 in float32.
  const HashGridConfig config{.n_levels = 3, .n_features_per_level = 1, .per_level_scale = std::sqrt(2.0)};
  EXPECT_EQ(cppcuda::hash_grid_parameters(3, config), 16 * 16 * 16 + (23 * 23 * 23 + 7) / 8 * 8 + 32 * 32 * 32);
}

TEST(HashGrid, DefaultsAndBatches) {
  at::manual_seed(1);
  const Sample s = sample(2, 20, {});
  const Tensor expected = reference(s.params, s.points, {});
  EXPECT_TRUE(close(cppcuda::hash_grid(s.params, s.points), expected, 1e-8));
  const Tensor params = at::stack({s.params, 2 * s.params}), points = s.points.expand({2, 20, 2});
  EXPECT_TRUE(close(cppcuda::hash_grid(params, points), at::stack({expected, 2 * expected}), 1e-8));
  EXPECT_EQ(cppcuda::hash_grid(s.params, s.points.slice(0, 0, 0)).sizes(), at::IntArrayRef({0, 32}));
}

struct Dtypes {
  at::ScalarType params, points;
  double tolerance;
};

TEST(HashGrid, DtypesOfResultsAndGradients) {
  for (const auto& [params_dtype, points_dtype, tolerance] :
       {Dtypes{at::kFloat, at::kFloat, 1e-4}, Dtypes{at::kHalf, at::kFloat, 2e-3},
        Dtypes{at::kBFloat16, at::kBFloat16, 1e-2}, Dtypes{at::kBFloat16, at::kFloat, 1e-2}}) {
    SCOPED_TRACE(::testing::Message() << params_dtype << ", " << points_dtype);
    at::manual_seed(2);
    const HashGridConfig config = small("Linear", 2);
    const Sample s = sample(3, 30, config);
    const Tensor params = s.params.to(params_dtype).requires_grad_();
    const Tensor points = s.points.to(points_dtype).requires_grad_();
    const Tensor exact_params = params.detach().to(at::kDouble).requires_grad_();
    const Tensor exact_points = points.detach().to(at::kDouble).requires_grad_();
    const Tensor out = cppcuda::hash_grid(params, points, config);
    const Tensor exact = reference(exact_params, exact_points, config);
    EXPECT_EQ(out.scalar_type(), params_dtype);
    EXPECT_TRUE(close(out, exact, tolerance));
    out.sum().backward();
    exact.sum().backward();
    EXPECT_EQ(params.grad().scalar_type(), params_dtype);
    EXPECT_EQ(points.grad().scalar_type(), points_dtype);
    EXPECT_TRUE(close(params.grad(), exact_params.grad(), tolerance));
    EXPECT_TRUE(close(points.grad(), exact_points.grad(), tolerance));
  }
}

TEST(HashGrid, StrangePointsLeaveOthersAlone) {
  at::manual_seed(3);
  const HashGridConfig config = small("Linear", 4);
  const Sample s = sample(3, 40, config);
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor strange = at::tensor({infinity, -infinity, std::nan(""), 1e300, -1e300, 2147483648.0}, at::kDouble);
  Tensor points = s.points.clone();
  points.slice(0, 0, 12, 2).copy_(strange.unsqueeze(1).expand({6, 3}));
  // Params between NaN, which a read outside would return.
  const Tensor guarded = at::full({3, s.params.size(0)}, std::nan(""), at::kDouble);
  guarded[1].copy_(s.params);
  const Tensor out = cppcuda::hash_grid(guarded[1], points, config);
  for (const auto& [from, step] : {std::tuple<int64_t, int64_t>{1, 2}, {12, 1}}) {
    const Tensor ordinary = points.slice(0, from, 40, step);
    EXPECT_TRUE(close(out.slice(0, from, 40, step), reference(s.params, ordinary, config), 1e-9));
  }
  EXPECT_TRUE(out.slice(0, 6, 12, 2).isfinite().all().item<bool>());
}

TEST(HashGrid, ThreadsAgree) {
  at::manual_seed(4);
  const HashGridConfig config{.n_levels = 8, .log2_hashmap_size = 12, .base_resolution = 4, .per_level_scale = 1.5};
  const Sample s = sample(3, 30000, config);
  const Tensor params = s.params.to(at::kFloat).requires_grad_(), points = s.points.to(at::kFloat).requires_grad_();
  const int before = at::get_num_threads();
  std::vector<std::vector<Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const Tensor out = cppcuda::hash_grid(params, points, config);
    auto gradients = grad({out.sin().sum()}, {params, points});
    gradients.push_back(out);
    results.push_back(gradients);
  }
  at::set_num_threads(before);
  for (const auto& result : results) {
    for (size_t i = 0; i < result.size(); ++i) EXPECT_TRUE(at::equal(result[i], results[0][i])) << "tensor " << i;
  }
}

struct Mistake {
  const char* name;
  std::vector<int64_t> params, points;
  HashGridConfig config;
  const char* message;
};

void PrintTo(const Mistake& m, std::ostream* os) { *os << m.name; }

class HashGridErrors : public ::testing::TestWithParam<Mistake> {};

TEST_P(HashGridErrors, NameOpArgumentAndWhatCame) {
  const auto& m = GetParam();
  EXPECT_EQ(error_of([&] { cppcuda::hash_grid(at::zeros(m.params), at::zeros(m.points), m.config); }), m.message);
}

INSTANTIATE_TEST_SUITE_P(
    HashGrid, HashGridErrors,
    ::testing::Values(
        Mistake{"Rank", {2, 2, 8}, {6, 3}, {}, "hash_grid: params must be [P] or [B, P], got [2, 2, 8]"},
        Mistake{"NotBatched", {2, 8}, {6, 3}, {}, "hash_grid: points must be [B, N, D], got [6, 3]"},
        Mistake{"Coordinates", {8}, {6, 5}, {}, "hash_grid: points must have 2, 3 or 4 coordinates, got [6, 5]"},
        Mistake{"Size", {8}, {6, 3}, {}, "hash_grid: params must have 14229504 entries for this grid, got 8"},
        Mistake{"Levels", {8}, {6, 3}, {.n_levels = 0}, "hash_grid: n_levels must be from 1 to 128, got 0"},
        Mistake{"Features",
                {8},
                {6, 3},
                {.n_features_per_level = 3},
                "hash_grid: n_features_per_level must be 1, 2, 4 or 8, got 3"},
        Mistake{"Interpolation",
                {8},
                {6, 3},
                {.interpolation = "Nearest"},
                "hash_grid: interpolation must be 'Linear' or 'Smoothstep', got 'Nearest'"}),
    [](const auto& info) { return info.param.name; });

TEST(HashGrid, OtherErrors) {
  const Sample s = sample(3, 4, {});
  EXPECT_EQ(error_of([&] { cppcuda::hash_grid({}, s.points); }),
            "hash_grid: params must be a Tensor, got an undefined Tensor");
  EXPECT_EQ(error_of([&] { cppcuda::hash_grid(s.params, {}); }),
            "hash_grid: points must be a Tensor, got an undefined Tensor");
  EXPECT_EQ(error_of([] { cppcuda::hash_grid_parameters(5); }),
            "hash_grid_parameters: n_input_dims must be 2, 3 or 4, got 5");
  EXPECT_EQ(error_of([] { cppcuda::hash_grid_parameters(3, {.log2_hashmap_size = 31}); }),
            "hash_grid_parameters: log2_hashmap_size must be from 1 to 30, got 31");
}

}  // namespace
