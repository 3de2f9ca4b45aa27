#include "ops/trilinear_indexed/op.h"

#include "interpolation_testing.h"

namespace {

using namespace cppcuda::testing;
namespace op = cppcuda::ops::trilinear_indexed;

struct TrilinearIndexed {
  Tensor corners;
  int64_t rows;

  Tensor corners_for(const Tensor& t) const { return t.is_cuda() ? on_cuda(corners) : corners; }
  Tensor forward(const Tensor& table, const Tensor& points) const {
    return op::Forward::call(table, corners_for(table), points);
  }
  auto backward(const Tensor& grad, const std::optional<Tensor>& table, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return op::Backward::call(grad, table, corners_for(grad), points, std::vector<c10::SymInt>{rows}, output_mask);
  }
  auto double_backward(const Tensor& grad, const std::optional<Tensor>& table, const Tensor& points,
                       const std::optional<Tensor>& grad_grad_table, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask, at::IntArrayRef order = {}) const {
    return op::DoubleBackward::call(grad, table, corners_for(grad), points, grad_grad_table, grad_grad_points,
                                    std::vector<c10::SymInt>{rows}, output_mask, order);
  }
};

// One in `rows` + 1 corners is missing.
TrilinearIndexed random_corners(at::IntArrayRef sizes, int64_t rows, at::ScalarType dtype) {
  return {at::randint(-1, rows, sizes, dtype), rows};
}

class CudaTrilinearIndexed : public ::testing::TestWithParam<Dtypes> {};

TEST_P(CudaTrilinearIndexed, AnyNumberOfFeatures) {
  for (const auto dtype : {at::kInt, at::kLong}) {
    for (const int64_t features : {1, 2, 3, 4, 8, 16, 33, 34}) {
      SCOPED_TRACE(features);
      const auto indexed = random_corners({45, 8}, 20, dtype);
      expect_close(indexed, with_gradients(indexed, random({20, features}), random({45, 3})), GetParam());
    }
  }
}

TEST_P(CudaTrilinearIndexed, AnyNumberOfRows) {
  for (const int64_t rows : {1, 2, 33, 257, 600}) {
    for (const int64_t features : {1, 2, 32}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << features);
      const auto indexed = random_corners({rows, 8}, 50, at::kInt);
      expect_close(indexed, with_gradients(indexed, random({50, features}), random({rows, 3})), GetParam());
    }
  }
}

// Threads take several steps.
TEST_P(CudaTrilinearIndexed, ManyFeatures) {
  for (const int64_t features : {70, 264}) {
    const auto indexed = random_corners({3, 8}, 4, at::kLong);
    expect_close(indexed, with_gradients(indexed, random({4, features}), random({3, 3})), GetParam());
  }
}

TEST_P(CudaTrilinearIndexed, AnyLayout) {
  for (const Layout layout : layouts) {
    auto indexed = random_corners({2, 5, 8}, 6, at::kInt);
    indexed.corners = in_layout(indexed.corners, layout);
    expect_close(indexed, with_gradients(indexed, random({2, 6, 8}), random({2, 5, 3})), GetParam(), layout);
  }
}

TEST_P(CudaTrilinearIndexed, ManyPointsOfFewRows) {
  const auto indexed = random_corners({140, 8}, 3, at::kLong);
  expect_close(indexed, with_gradients(indexed, random({3, 2}), random({140, 3})), GetParam());
}

// Where a vertex is missing, NaN and infinities in points and grad have no effect.
TEST_P(CudaTrilinearIndexed, MissingVertices) {
  const TrilinearIndexed indexed{at::full({9, 8}, -1, at::kLong), 4};
  Arguments a = with_gradients(indexed, random({4, 2}), random({9, 3}));
  a.grad.fill_(std::numeric_limits<double>::infinity());
  expect_close(indexed, a, GetParam());
  a.points.fill_(std::numeric_limits<double>::quiet_NaN());
  const Tensor out = indexed.forward(on_cuda(a.table.to(GetParam().narrow)), on_cuda(a.points.to(GetParam().wide)));
  EXPECT_TRUE(close(out.cpu(), at::zeros({9, 2}), 0));
}

TEST_P(CudaTrilinearIndexed, WithGrad) {
  const auto& [name, narrow, wide, tolerance] = GetParam();
  for (const auto dtype : {at::kInt, at::kLong}) {
    for (const int64_t features : {1, 8, 33, 136}) {
      SCOPED_TRACE(features);
      const auto indexed = random_corners({2, 20, 8}, 20, dtype);
      const Tensor table = random({2, 20, features}).to(narrow), points = random({2, 20, 3}).to(wide);
      const auto [value, gradient] = op::WithGrad::call(on_cuda(table), on_cuda(indexed.corners), on_cuda(points));
      const auto [expected_value, expected_gradient] =
          op::WithGrad::call(table.to(at::kDouble), indexed.corners, points.to(at::kDouble));
      EXPECT_TRUE(close(value.cpu(), expected_value, tolerance));
      EXPECT_TRUE(close(gradient.cpu(), expected_gradient, tolerance));
    }
  }
}

TEST_P(CudaTrilinearIndexed, NothingToDo) {
  for (const auto& [points, rows, features] : {std::tuple{0, 4, 2}, {3, 4, 0}, {0, 0, 2}}) {
    const auto indexed = TrilinearIndexed{at::zeros({points, 8}, at::kLong), rows};
    expect_close(indexed, with_gradients(indexed, random({rows, features}), random({points, 3})), GetParam());
  }
  const TrilinearIndexed no_rows{at::full({3, 8}, -1, at::kLong), 0};
  expect_close(no_rows, with_gradients(no_rows, random({0, 2}), random({3, 3})), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, CudaTrilinearIndexed, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
