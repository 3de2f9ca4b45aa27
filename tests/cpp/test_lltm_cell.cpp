#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>

#include "lltm_testing.h"
#include "ops/lltm_cell/cuda/launch.h"
#include "ops/lltm_cell/math.h"
#include "ops/lltm_cell/op.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using cppcuda::testing::on_device;
using torch::autograd::grad;

// input, weight, bias, hx, cx
using Arguments = std::array<Tensor, 5>;

// group < 0: no groups.
Arguments arguments(int64_t group, int64_t rows, int64_t input, int64_t size, at::ScalarType dtype = at::kDouble) {
  auto make = [&](std::vector<int64_t> sizes) {
    if (group >= 0) sizes.insert(sizes.begin(), group);
    return (at::randn(sizes, at::kDouble) * 0.5).to(dtype);
  };
  return {make({rows, input}), make({3 * size, size + input}), make({3 * size}), make({rows, size}),
          make({rows, size})};
}

std::vector<Tensor> reference(const Arguments& a) {
  const auto& [input, weight, bias, hx, cx] = a;
  const auto [hy, cy] =
      cppcuda::testing::reference_cell(cppcuda::testing::reference_gates(input, weight, bias, hx), cx);
  return {hy, cy};
}

std::vector<Tensor> ours(const Arguments& a) {
  const auto [hy, cy] = cppcuda::lltm_cell(a[0], a[1], a[2], a[3], a[4]);
  return {hy, cy};
}

struct Shape {
  const char* name;
  int64_t group, rows, input, size;
};

void PrintTo(const Shape& s, std::ostream* os) { *os << s.name; }

class LltmCellShapes : public ::testing::TestWithParam<Shape> {};

TEST_P(LltmCellShapes, ValuesAndGradientsOfBothOrdersEqualPlainTorch) {
  at::manual_seed(0);
  const auto [name, group, rows, input, size] = GetParam();
  const Arguments plain = arguments(group, rows, input, size);
  const std::vector<Tensor> weights{at::randn_like(plain[3]), at::randn_like(plain[4])};
  std::vector<std::vector<Tensor>> results;
  for (const auto f : {ours, reference}) {
    Arguments a;
    std::transform(plain.begin(), plain.end(), a.begin(), [](const Tensor& t) { return t.clone().requires_grad_(); });
    const std::vector<Tensor> inputs(a.begin(), a.end());
    std::vector<Tensor> found = f(a);
    const auto first = grad(found, inputs, weights, /*retain_graph=*/true, /*create_graph=*/true);
    Tensor sum = at::zeros({}, at::kDouble);
    for (const Tensor& t : first) sum = sum + (t.sin() * (t + 1)).sum();
    const auto second = grad({sum}, inputs);
    found.insert(found.end(), first.begin(), first.end());
    found.insert(found.end(), second.begin(), second.end());
    results.push_back(found);
  }
  EXPECT_TRUE(results[0][0].is_contiguous());
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(close(results[0][i], results[1][i], 1e-10)) << i;
}

INSTANTIATE_TEST_SUITE_P(LltmCell, LltmCellShapes,
                         ::testing::Values(Shape{"One", -1, 1, 1, 1}, Shape{"Odd", -1, 5, 3, 7},
                                           Shape{"ManyRows", -1, 300, 4, 16}, Shape{"WideState", -1, 1, 8, 300},
                                           Shape{"Groups", 3, 4, 2, 5}, Shape{"OneGroup", 1, 4, 2, 5},
                                           Shape{"NoRows", -1, 0, 2, 5}, Shape{"NoInput", -1, 4, 0, 5},
                                           Shape{"NoState", -1, 4, 2, 0}, Shape{"NoGroups", 0, 4, 2, 5}),
                         [](const auto& info) { return info.param.name; });

// The dtypes of input and cx, and the tolerance.
struct Dtypes {
  const char* name;
  at::ScalarType input, cx;
  double tolerance;
};

void PrintTo(const Dtypes& d, std::ostream* os) { *os << d.name; }

class LltmCellDtypes : public ::testing::TestWithParam<Dtypes> {};

TEST_P(LltmCellDtypes, ValuesAndGradients) {
  at::manual_seed(1);
  const auto [name, dtype, cx_dtype, tolerance] = GetParam();
  Arguments a = arguments(-1, 20, 6, 8, dtype), exact;
  a[4] = a[4].to(cx_dtype);
  std::transform(a.begin(), a.end(), exact.begin(), [](const Tensor& t) { return t.to(at::kDouble).requires_grad_(); });
  for (Tensor& t : a) t = t.detach().requires_grad_();
  const auto actual = ours(a), expected = reference(exact);
  EXPECT_EQ(actual[0].scalar_type(), dtype);
  EXPECT_EQ(actual[1].scalar_type(), cx_dtype);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(close(actual[i], expected[i], tolerance));
  (actual[0].to(at::kDouble).sum() + actual[1].to(at::kDouble).sum()).backward();
  (expected[0].sum() + expected[1].sum()).backward();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].grad().scalar_type(), a[i].scalar_type());
    EXPECT_TRUE(close(a[i].grad(), exact[i].grad(), 4 * tolerance)) << "gradient " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(LltmCell, LltmCellDtypes,
                         ::testing::Values(Dtypes{"float64", at::kDouble, at::kDouble, 1e-12},
                                           Dtypes{"float32", at::kFloat, at::kFloat, 3e-6},
                                           Dtypes{"float16", at::kHalf, at::kHalf, 4e-3},
                                           Dtypes{"bfloat16", at::kBFloat16, at::kBFloat16, 3e-2},
                                           Dtypes{"float16_float32", at::kHalf, at::kFloat, 4e-3},
                                           Dtypes{"bfloat16_float32", at::kBFloat16, at::kFloat, 3e-2}),
                         [](const auto& info) { return info.param.name; });

TEST(LltmCell, ErrorsNameOpAndArgument) {
  const Arguments good = arguments(-1, 5, 3, 4);
  auto with = [&](size_t i, const Tensor& t) {
    Arguments a = good;
    a[i] = t;
    return error_of([&] { ours(a); });
  };
  const char* names[] = {"input", "weight", "bias", "hx", "cx"};
  for (size_t i = 0; i < good.size(); ++i) {
    const std::string start = std::string("lltm_cell: ") + names[i];
    EXPECT_EQ(with(i, {}), start + " must be a Tensor, got an undefined Tensor");
    EXPECT_EQ(with(i, good[i].to(at::kLong)),
              start + " must be of dtype float64, float32, float16 or bfloat16, got int64");
    EXPECT_EQ(with(i, good[i].to_sparse()), start + " must be a dense (strided) tensor, got layout Sparse");
    EXPECT_EQ(with(i, good[i].detach().requires_grad_()), "no error");
  }
  EXPECT_EQ(with(1, at::randn({16, 7}, at::kDouble)), "lltm_cell: weight must be [3S, S + I] with S = 4, got [16, 7]");
  EXPECT_EQ(with(1, at::randn({12, 6}, at::kDouble).requires_grad_()),
            "lltm_cell: weight must be [3S, S + I] with S = 4, I = 3, got [12, 6]");
  Arguments elsewhere;
  for (size_t i = 0; i < good.size(); ++i) elsewhere[i] = on_device(at::kHPU, good[i].sizes());
  EXPECT_EQ(error_of([&] { ours(elsewhere); }).find("lltm_cell: input must be on cpu"), 0u);
}

TEST(LltmCell, MissingGradientsAreZeros) {
  using Backward = cppcuda::ops::lltm_cell::Backward;
  const auto [input, weight, bias, hx, cx] = arguments(-1, 5, 3, 4);
  const auto results =
      cppcuda::kit::to_array(Backward::call(std::nullopt, std::nullopt, std::nullopt, at::randn({5, 12}, at::kDouble),
                                            input, weight, hx, cx, c10::List<bool>({true, true, true, true, true})));
  const Tensor like[] = {input, weight, bias, hx, cx};
  for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(at::equal(results[i], at::zeros_like(like[i])));
}

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
