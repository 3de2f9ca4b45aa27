#include "cuda_testing.h"
#include "ops/trilinear/op.h"

namespace {

using namespace cppcuda::testing;
using cppcuda::ops::trilinear::Backward;
using cppcuda::ops::trilinear::DoubleBackward;
using cppcuda::ops::trilinear::Forward;

// Weights of the corners, [..., N, 8], and their derivatives with respect to the coordinates, [..., N, 8, 3], in
// float64.
std::pair<Tensor, Tensor> weights(const Tensor& points) {
  const Tensor p = points.to(at::kDouble);
  std::vector<Tensor> weights, slopes;
  for (int corner = 0; corner < 8; ++corner) {
    std::vector<Tensor> factors, signs;
    for (int d = 0; d < 3; ++d) {
      const double sign = corner >> (2 - d) & 1 ? 1 : -1;
      factors.push_back((1 + sign * p.select(-1, d)) / 2);
      signs.push_back(at::full_like(factors.back(), sign / 2));
    }
    weights.push_back(factors[0] * factors[1] * factors[2]);
    slopes.push_back(at::stack(
        {signs[0] * factors[1] * factors[2], factors[0] * signs[1] * factors[2], factors[0] * factors[1] * signs[2]},
        -1));
  }
  return {at::stack(weights, -1), at::stack(slopes, -2)};
}

class CudaTrilinear : public ::testing::TestWithParam<Dtypes> {
 protected:
  // Compares the output and every combination of gradients on the device with float64 on the CPU.
  void check(const Tensor& feats, const Tensor& points, const Tensor& grad) {
    const double tolerance = GetParam().tolerance;
    const Tensor f = on_cuda(feats), p = on_cuda(points), g = on_cuda(grad);
    const auto [weight, slope] = weights(points);
    const Tensor x = feats.to(at::kDouble), dy = grad.to(at::kDouble);
    const Tensor out = Forward::call(f, p);
    EXPECT_EQ(out.scalar_type(), feats.scalar_type());
    EXPECT_TRUE(out.is_contiguous());
    EXPECT_TRUE(close(out.cpu(), (weight.unsqueeze(-1) * x).sum(-2), tolerance));

    const Tensor grad_feats = weight.unsqueeze(-1) * dy.unsqueeze(-2);
    const Tensor grad_points = ((x * dy.unsqueeze(-2)).sum(-1).unsqueeze(-1) * slope).sum(-2);
    for (const auto& [need_feats, need_points] : {std::pair{true, true}, {true, false}, {false, true}}) {
      const auto result = Backward::call(g, need_points ? std::optional(f) : std::nullopt, p,
                                         c10::List<bool>({need_feats, need_points}));
      if (need_feats) {
        EXPECT_TRUE(close(std::get<0>(result).cpu(), grad_feats, tolerance));
      }
      if (need_points) {
        EXPECT_EQ(std::get<1>(result).scalar_type(), points.scalar_type());
        // The gradient is a sum over features, rounded once to the points' dtype.
        EXPECT_TRUE(close(std::get<1>(result).cpu(), grad_points, 2 * tolerance));
      }
    }
  }

  void check(at::IntArrayRef batch, int64_t rows, int64_t features, Layout layout) {
    SCOPED_TRACE(::testing::Message() << batch << " x " << rows << " rows of " << features << ", "
                                      << ::testing::PrintToString(layout));
    auto sizes = [&](std::initializer_list<int64_t> of_row) {
      std::vector<int64_t> s = batch.vec();
      s.push_back(rows);
      s.insert(s.end(), of_row);
      return s;
    };
    const Dtypes& types = GetParam();
    check(in_layout(at::randn(sizes({8, features}), at::kDouble).to(types.narrow), layout),
          in_layout((at::rand(sizes({3}), at::kDouble) * 2 - 1).to(types.wide), layout),
          in_layout(at::randn(sizes({features}), at::kDouble).to(types.narrow), layout));
  }
};

// The gradients of the gradients, for every combination of requested ones.
class CudaTrilinearDoubleBackward : public ::testing::TestWithParam<Dtypes> {
 protected:
  static void check(at::IntArrayRef batch, int64_t features, Layout layout) {
    SCOPED_TRACE(::testing::Message() << batch << " x " << features << ", " << ::testing::PrintToString(layout));
    const auto& [name, narrow, wide, tolerance] = GetParam();
    const auto random = [&](std::initializer_list<int64_t> of_row, at::ScalarType dtype) {
      std::vector<int64_t> sizes = batch.vec();
      sizes.insert(sizes.end(), of_row);
      return in_layout((at::rand(sizes, at::kDouble) * 2 - 1).to(dtype), layout);
    };
    const Tensor grad = random({features}, narrow), feats = random({8, features}, narrow), points = random({3}, wide),
                 grad_grad_feats = random({8, features}, narrow), grad_grad_points = random({3}, wide);
    const Tensor g = grad.to(at::kDouble).unsqueeze(-2), x = feats.to(at::kDouble), u = grad_grad_feats.to(at::kDouble),
                 v = grad_grad_points.to(at::kDouble);
    const auto [weight, slope] = weights(points);
    const Tensor along = (slope * v.unsqueeze(-2)).sum(-1);
    // A slope is quadratic along a line, so that this difference is its derivative.
    const Tensor slope_along =
        (weights(points.to(at::kDouble) + v).second - weights(points.to(at::kDouble) - v).second) / 2;
    const auto project = [&](const Tensor& slopes, const Tensor& of) {
      return (slopes * (of * g).sum(-1).unsqueeze(-1)).sum(-2);
    };
    for (const bool has_feats : {false, true}) {
      std::array<Tensor, 3> expected{(along.unsqueeze(-1) * x).sum(-2), along.unsqueeze(-1) * g,
                                     project(slope_along, x)};
      if (has_feats) {
        expected[0] += (weight.unsqueeze(-1) * u).sum(-2);
        expected[2] += project(slope, u);
      }
      for (int mask = 1; mask < 8; ++mask) {
        const std::array<bool, 3> need{(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
        const auto result =
            DoubleBackward::call(on_cuda(grad), need[0] || need[2] ? std::optional(on_cuda(feats)) : std::nullopt,
                                 on_cuda(points), has_feats ? std::optional(on_cuda(grad_grad_feats)) : std::nullopt,
                                 on_cuda(grad_grad_points), c10::List<bool>({need[0], need[1], need[2]}));
        const std::array<Tensor, 3> outputs{std::get<0>(result), std::get<1>(result), std::get<2>(result)};
        for (int i = 0; i < 3; ++i) {
          if (!need[i]) continue;
          EXPECT_EQ(outputs[i].scalar_type(), i == 2 ? wide : narrow);
          // The gradient of points is a sum over features.
          EXPECT_TRUE(close(outputs[i].cpu(), expected[i], i == 2 ? 4 * tolerance : 2 * tolerance))
              << i << ", " << mask;
        }
      }
    }
  }
};

TEST_P(CudaTrilinearDoubleBackward, AnyNumberOfFeatures) {
  for (const int64_t features : {1, 2, 3, 8, 16, 33, 64, 160}) check({5}, features, Layout::contiguous);
  check({150}, 8, Layout::contiguous);
}

TEST_P(CudaTrilinearDoubleBackward, AnyLayout) {
  for (const Layout layout : layouts) check({3, 7}, 16, layout);
}

TEST_P(CudaTrilinearDoubleBackward, NothingToDo) {
  check({0}, 4, Layout::contiguous);
  check({3}, 0, Layout::contiguous);
}

INSTANTIATE_TEST_SUITE_P(All, CudaTrilinearDoubleBackward, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

TEST_P(CudaTrilinear, AnyNumberOfFeatures) {
  for (const int64_t features : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 24, 31, 32, 33, 64, 100, 128, 256, 257, 520}) {
    check({}, 5, features, Layout::contiguous);
  }
}

TEST_P(CudaTrilinear, AnyNumberOfRows) {
  for (const int64_t rows : {1, 2, 33, 256, 257, 600, 2100}) {
    for (const int64_t features : {1, 2, 3, 4, 5, 8, 32}) check({}, rows, features, Layout::contiguous);
  }
}

TEST_P(CudaTrilinear, AnyLayout) {
  for (const Layout layout : layouts) {
    for (const int64_t features : {1, 2, 3, 4, 8, 16, 20, 64}) {
      check({}, 21, features, layout);
      check({3}, 7, features, layout);
    }
  }
}

// Operands as vmap passes them: one of them has no batch dim of its own and is expanded.
TEST_P(CudaTrilinear, SharedBatches) {
  const auto& [name, narrow, wide, tolerance] = GetParam();
  for (const int64_t features : {3, 8}) {
    const Tensor feats = at::randn({4, 9, 8, features}, at::kDouble).to(narrow);
    const Tensor points = at::rand({4, 9, 3}, at::kDouble).to(wide);
    const Tensor grad = at::randn({4, 9, features}, at::kDouble).to(narrow);
    check(feats[0].expand_as(feats), points, grad);
    check(feats, points[0].expand_as(points), grad);
    check(feats, points, grad[0].expand_as(grad));
  }
}

TEST_P(CudaTrilinear, NothingToDo) {
  for (const auto& [rows, features] : {std::pair{0, 4}, {3, 0}, {0, 0}}) check({}, rows, features, Layout::contiguous);
}

INSTANTIATE_TEST_SUITE_P(All, CudaTrilinear, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
