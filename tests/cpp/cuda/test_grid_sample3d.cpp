#include "interpolation/dispatch.h"
#include "interpolation_testing.h"
#include "ops/grid_sample3d/lookup.h"
#include "ops/grid_sample3d/op.h"

namespace {

using namespace cppcuda::testing;
namespace op = cppcuda::ops::grid_sample3d;

struct GridSample3d {
  const char* padding_mode = "zeros";
  bool align_corners = false;
  std::vector<c10::SymInt> size;  // [D, H, W]

  Tensor forward(const Tensor& input, const Tensor& points) const {
    return op::Forward::call(input, points, padding_mode, align_corners);
  }
  auto backward(const Tensor& grad, const std::optional<Tensor>& input, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return op::Backward::call(grad, input, points, size, padding_mode, align_corners, output_mask);
  }
  auto double_backward(const Tensor& grad, const std::optional<Tensor>& input, const Tensor& points,
                       const std::optional<Tensor>& grad_grad_input, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask, at::IntArrayRef order = {}) const {
    return op::DoubleBackward::call(grad, input, points, grad_grad_input, grad_grad_points, size, padding_mode,
                                    align_corners, output_mask, order);
  }
};

class CudaGridSample3d : public ::testing::TestWithParam<Dtypes> {
 protected:
  // Positions are up to twice the coordinates.
  static Dtypes types() {
    Dtypes result = GetParam();
    result.tolerance *= 2;
    return result;
  }
};

TEST_P(CudaGridSample3d, AnyNumberOfFeatures) {
  for (const int64_t features : {1, 2, 3, 4, 8, 16, 33, 34}) {
    SCOPED_TRACE(features);
    const GridSample3d grid{.size = {2, 3, 4}};
    expect_close(grid, with_gradients(grid, random({2, 3, 4, features}), random({45, 3}, -1.4, 1.4)), types());
  }
}

TEST_P(CudaGridSample3d, AnyNumberOfRows) {
  for (const int64_t rows : {1, 2, 33, 257, 600}) {
    for (const int64_t features : {1, 2, 32}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << features);
      const GridSample3d grid{.size = {3, 4, 5}};
      expect_close(grid, with_gradients(grid, random({3, 4, 5, features}), random({rows, 3}, -1.1, 1.1)), types());
    }
  }
}

TEST_P(CudaGridSample3d, AnyPadding) {
  for (const char* padding : {"zeros", "border", "reflection"}) {
    for (const bool align_corners : {false, true}) {
      SCOPED_TRACE(::testing::Message() << padding << ", " << align_corners);
      const GridSample3d grid{padding, align_corners, {3, 1, 4}};
      expect_close(grid, with_gradients(grid, random({3, 1, 4, 2}), random({30, 3}, -2.5, 2.5)), types());
    }
  }
}

TEST_P(CudaGridSample3d, AnyLayout) {
  for (const Layout layout : layouts) {
    const GridSample3d grid{.size = {3, 2, 3}};
    expect_close(grid, with_gradients(grid, random({2, 3, 2, 3, 8}), random({2, 5, 3}, -1.2, 1.2)), types(), layout);
  }
}

TEST_P(CudaGridSample3d, ManyPointsOfOneVoxel) {
  const GridSample3d grid{.padding_mode = "border", .size = {1, 1, 2}};
  expect_close(grid, with_gradients(grid, random({1, 1, 2, 2}), random({140, 3})), types());
}

TEST_P(CudaGridSample3d, PointsAreNumbersOrNot) {
  const GridSample3d grid{.size = {2, 2, 2}};
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor points = at::tensor({infinity, 0.0, 0.0, 0.0, -infinity, 0.0, 0.0, 0.0, std::nan("")}, at::kDouble);
  const Tensor input = on_cuda(random({2, 2, 2, 3}).to(GetParam().narrow));
  const Tensor out = grid.forward(input, on_cuda(points.view({3, 3}).to(GetParam().wide)));
  EXPECT_TRUE(close(out.cpu(), at::zeros({3, 3}), 0));
}

using CudaGridSample3dInOrder = CudaGridSample3d;

// The fixed order of additions, in slices of a few points, and with row numbers in 64 bits.
void expect_in_order(const Dtypes& types, const std::array<int64_t, 3>& size, int64_t count,
                     std::initializer_list<int64_t> slices) {
  using Lookup = op::Lookup;
  const int64_t depth = size[0], height = size[1], width = size[2];
  const int64_t rows = 2 * depth * height * width;
  const Tensor points = random({2, count, 3}, -1.2, 1.2).to(types.wide), grad = random({2, count, 3}).to(types.narrow);
  const Tensor expected = std::get<0>(GridSample3d{.size = {depth, height, width}}.backward(
      grad.to(at::kDouble), std::nullopt, points.to(at::kDouble), c10::List<bool>({true, false})));
  cppcuda::kit::visit_dtype(types.narrow, [&]<class T>(std::type_identity<T>) {
    using A = cppcuda::kit::opmath<T>;
    const Tensor p = on_cuda(points), g = on_cuda(grad);
    for (const int64_t max_row : {int64_t{1} << 30, rows - 1, rows}) {
      for (const int64_t max_terms : slices) {
        const auto dtype = c10::CppTypeToScalarType<A>::value;
        const Tensor table = on_cuda(at::zeros({2, depth, height, width, 3}, dtype));
        cppcuda::interpolation::ScatterParams<T, T, Lookup> params;
        params.lookup = {.size = {width, height, depth}, .padding = op::Padding::zeros, .align_corners = false};
        params.batches = 2;
        params.points = count;
        params.features = 3;
        params.point = cppcuda::kit::rows_of<T>(p, 1);
        params.grad = cppcuda::kit::rows_of<T>(g, 1);
        params.table = table.mutable_data_ptr<A>();
        cppcuda::interpolation::scatter_in_order(params, p.options(), max_terms, max_row);
        EXPECT_TRUE(close(table.cpu(), expected, 8 * types.tolerance)) << max_terms << ", " << max_row;
      }
    }
  });
}

TEST_P(CudaGridSample3dInOrder, SlicesOfPoints) { expect_in_order(GetParam(), {3, 2, 2}, 30, {8, 56, 480}); }

// The sort has blocks that wait for others from 4,000 terms on, and a pass over the terms for each 8 bits of a row.
TEST_P(CudaGridSample3dInOrder, ManyTerms) { expect_in_order(GetParam(), {8, 7, 9}, 600, {9600}); }

TEST_P(CudaGridSample3d, NothingToDo) {
  for (const auto& [points, features] : {std::pair{0, 2}, {3, 0}}) {
    const GridSample3d grid{.size = {2, 2, 2}};
    expect_close(grid, with_gradients(grid, random({2, 2, 2, features}), random({points, 3})), types());
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaGridSample3dInOrder, ::testing::ValuesIn(all_dtypes, all_dtypes + 4),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(All, CudaGridSample3d, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
