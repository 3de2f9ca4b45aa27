#include <ATen/Parallel.h>
#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/vision.h>

#include <string>
#include <tuple>

#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using torch::autograd::grad;

// F.grid_sample in float64, of input [D, H, W, F] or [B, D, H, W, F].
Tensor reference(const Tensor& input, const Tensor& points, const std::string& padding_mode, bool align_corners) {
  namespace F = torch::nn::functional;
  const bool batched = input.dim() == 5;
  const Tensor x = (batched ? input : input.unsqueeze(0)).to(at::kDouble).permute({0, 4, 1, 2, 3});
  const Tensor p = (batched ? points : points.unsqueeze(0)).to(at::kDouble).unsqueeze(2).unsqueeze(2);
  auto options = F::GridSampleFuncOptions().mode(torch::kBilinear).align_corners(align_corners);
  if (padding_mode == "zeros") options.padding_mode(torch::kZeros);
  if (padding_mode == "border") options.padding_mode(torch::kBorder);
  if (padding_mode == "reflection") options.padding_mode(torch::kReflection);
  const Tensor out = F::grid_sample(x, p, options).flatten(2).transpose(1, 2);
  return batched ? out : out[0];
}

struct Sample {
  Tensor input, points;
};

// batch < 0: no batch dim. Points are up to `reach` from 0.
Sample sample(int64_t batch, int64_t points, int64_t features, double reach = 1.7) {
  std::vector<int64_t> input{4, 3, 5, features}, coordinates{points, 3};
  if (batch >= 0) {
    input.insert(input.begin(), batch);
    coordinates.insert(coordinates.begin(), batch);
  }
  return {at::randn(input, at::kDouble), (at::rand(coordinates, at::kDouble) * 2 - 1) * reach};
}

class GridSample3dModes : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(GridSample3dModes, ValuesAndGradientsEqualTorch) {
  const auto [mode, align] = GetParam();
  at::manual_seed(0);
  for (const int64_t batch : {-1, 3}) {
    for (const int64_t features : {1, 4, 19, 64}) {
      for (const double reach : {0.9, 1.7, 12.0}) {
        SCOPED_TRACE(::testing::Message() << batch << ", " << features << ", " << reach);
        const Sample s = sample(batch, 200, features, reach);
        const Tensor input = s.input.requires_grad_(), points = s.points.requires_grad_();
        const Tensor out = cppcuda::grid_sample3d(input, points, mode, align);
        const Tensor expected = reference(input, points, mode, align);
        EXPECT_TRUE(out.is_contiguous());
        EXPECT_TRUE(close(out, expected, 1e-11));
        const Tensor weight = at::randn_like(expected);
        const auto gradients = grad({out}, {input, points}, {weight});
        const auto exact = grad({expected}, {input, points}, {weight});
        for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(close(gradients[i], exact[i], 1e-11)) << "gradient " << i;
      }
    }
  }
}

// Coordinates of the centres and faces of voxels are exact for these sizes.
TEST_P(GridSample3dModes, GradientsAtKinksEqualTorch) {
  const auto [mode, align] = GetParam();
  at::manual_seed(1);
  const int64_t size = align ? 5 : 4;
  const Tensor along = at::arange(-6, 2 * size + 7, at::kDouble) / (align ? size - 1 : size) - 1;
  const Tensor points = at::cartesian_prod({along, along, along}).requires_grad_();
  const Tensor input = at::randn({size, size, size, 2}, at::kDouble).requires_grad_();
  const Tensor out = cppcuda::grid_sample3d(input, points, mode, align);
  const Tensor expected = reference(input, points, mode, align);
  EXPECT_TRUE(close(out, expected, 1e-13));
  const Tensor weight = at::randn_like(expected);
  const auto gradients = grad({out}, {input, points}, {weight}), exact = grad({expected}, {input, points}, {weight});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(close(gradients[i], exact[i], 1e-13)) << "gradient " << i;
}

INSTANTIATE_TEST_SUITE_P(GridSample3d, GridSample3dModes,
                         ::testing::Combine(::testing::Values("zeros", "border", "reflection"), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_aligned" : "");
                         });

TEST(GridSample3d, OptionsHaveTheDefaultsOfTorch) {
  const Sample s = sample(-1, 50, 3);
  EXPECT_TRUE(close(cppcuda::grid_sample3d(s.input, s.points), reference(s.input, s.points, "zeros", false), 1e-12));
  const std::string mode = "border";
  EXPECT_TRUE(close(cppcuda::grid_sample3d(s.input, s.points, mode), reference(s.input, s.points, mode, false), 1e-12));
}

TEST(GridSample3d, StridesDoNotMatter) {
  at::manual_seed(2);
  const Sample s = sample(2, 40, 6);
  const Tensor expected = reference(s.input, s.points, "border", false);
  const Tensor features_first = s.input.permute({0, 4, 1, 2, 3}).contiguous().permute({0, 2, 3, 4, 1});
  const Tensor wider = at::zeros({2, 9, 7, 11, 13}, at::kDouble);
  const Tensor sliced = wider.slice(1, 1, 9, 2).slice(2, 1, 7, 2).slice(3, 1, 11, 2).slice(4, 1, 13, 2);
  sliced.copy_(s.input);
  const Tensor turned = s.points.transpose(0, 2).contiguous().transpose(0, 2);
  for (const Tensor& input : {features_first, sliced}) {
    ASSERT_FALSE(input.is_contiguous());
    ASSERT_EQ(input.sizes(), s.input.sizes());
    EXPECT_TRUE(close(cppcuda::grid_sample3d(input, turned, "border"), expected, 1e-12));
  }
}

struct Dtypes {
  at::ScalarType input, points;
  double tolerance;
};

TEST(GridSample3d, DtypesOfResultsAndGradients) {
  for (const auto& [input_dtype, points_dtype, tolerance] :
       {Dtypes{at::kFloat, at::kFloat, 1e-5}, Dtypes{at::kHalf, at::kHalf, 2e-3}, Dtypes{at::kHalf, at::kFloat, 2e-3},
        Dtypes{at::kBFloat16, at::kFloat, 1e-2}}) {
    SCOPED_TRACE(::testing::Message() << input_dtype << ", " << points_dtype);
    at::manual_seed(3);
    const Sample s = sample(-1, 30, 8, 0.9);
    const Tensor input = s.input.to(input_dtype).requires_grad_(), points = s.points.to(points_dtype).requires_grad_();
    const Tensor exact_input = input.detach().to(at::kDouble).requires_grad_();
    const Tensor exact_points = points.detach().to(at::kDouble).requires_grad_();
    const Tensor out = cppcuda::grid_sample3d(input, points);
    const Tensor exact = reference(exact_input, exact_points, "zeros", false);
    EXPECT_EQ(out.scalar_type(), input_dtype);
    EXPECT_TRUE(close(out, exact, tolerance));
    out.sum().backward();
    exact.sum().backward();
    EXPECT_EQ(input.grad().scalar_type(), input_dtype);
    EXPECT_EQ(points.grad().scalar_type(), points_dtype);
    EXPECT_TRUE(close(input.grad(), exact_input.grad(), tolerance));
    EXPECT_TRUE(close(points.grad(), exact_points.grad(), 2 * tolerance));
  }
}

TEST(GridSample3d, EmptyTensors) {
  for (const auto& [batch, points, features] :
       {std::tuple<int64_t, int64_t, int64_t>{-1, 0, 4}, {-1, 5, 0}, {0, 5, 4}, {2, 0, 4}}) {
    const Sample s = sample(batch, points, features);
    const Tensor input = s.input.requires_grad_(), p = s.points.requires_grad_();
    cppcuda::grid_sample3d(input, p).sum().backward();
    EXPECT_TRUE(at::equal(input.grad(), at::zeros_like(input)));
    EXPECT_TRUE(at::equal(p.grad(), at::zeros_like(p)));
  }
}

TEST(GridSample3d, ThreadsAgree) {
  at::manual_seed(4);
  Sample s = sample(-1, 30000, 4, 1.1);
  s.input = s.input.to(at::kFloat).requires_grad_();
  s.points = s.points.to(at::kFloat).requires_grad_();
  const int before = at::get_num_threads();
  std::vector<std::vector<Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const Tensor out = cppcuda::grid_sample3d(s.input, s.points);
    auto gradients = grad({out.sin().sum()}, {s.input, s.points});
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
  std::vector<int64_t> input, points;
  const char* padding_mode;
  const char* message;
};

void PrintTo(const Mistake& m, std::ostream* os) { *os << m.name; }

class GridSample3dErrors : public ::testing::TestWithParam<Mistake> {};

TEST_P(GridSample3dErrors, NameOpArgumentAndWhatCame) {
  const auto& m = GetParam();
  const Tensor input = at::zeros(m.input), points = at::zeros(m.points);
  EXPECT_EQ(error_of([&] { cppcuda::grid_sample3d(input, points, m.padding_mode); }), m.message);
}

INSTANTIATE_TEST_SUITE_P(
    GridSample3d, GridSample3dErrors,
    ::testing::Values(
        Mistake{"Rank",
                {3, 4, 5},
                {6, 3},
                "zeros",
                "grid_sample3d: input must be [D, H, W, F] or [B, D, H, W, F], got [3, 4, 5]"},
        Mistake{"Coordinates", {2, 3, 4, 5}, {6, 2}, "zeros", "grid_sample3d: points must be [N, 3], got [6, 2]"},
        Mistake{"NotBatched", {1, 2, 3, 4, 5}, {6, 3}, "zeros", "grid_sample3d: points must be [B, N, 3], got [6, 3]"},
        Mistake{"NoVoxels",
                {2, 0, 4, 5},
                {6, 3},
                "zeros",
                "grid_sample3d: input must have D, H and W of at least 1, got [2, 0, 4, 5]"},
        Mistake{"Mode",
                {2, 3, 4, 5},
                {6, 3},
                "reflect",
                "grid_sample3d: padding_mode must be 'zeros', 'border' or 'reflection', got 'reflect'"}),
    [](const auto& info) { return info.param.name; });

TEST(GridSample3d, UndefinedTensors) {
  const Sample s = sample(-1, 4, 5);
  EXPECT_EQ(error_of([&] { cppcuda::grid_sample3d({}, s.points); }),
            "grid_sample3d: input must be a Tensor, got an undefined Tensor");
  EXPECT_EQ(error_of([&] { cppcuda::grid_sample3d(s.input, {}); }),
            "grid_sample3d: points must be a Tensor, got an undefined Tensor");
}

}  // namespace
