#include "interpolation_testing.h"
#include "ops/spline_prefilter/op.h"
#include "ops/spline_sample/op.h"

namespace {

using namespace cppcuda::testing;
namespace op = cppcuda::ops::spline_sample;

template <class Family>
struct Spline {
  std::vector<c10::SymInt> size;
  int64_t order = 3;
  const char* border = "mirror";

  Tensor forward(const Tensor& input, const Tensor& points) const {
    return Family::Forward::call(input, points, order, border);
  }
  auto backward(const Tensor& grad, const std::optional<Tensor>& input, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return Family::Backward::call(grad, input, points, size, order, border, output_mask);
  }
  auto double_backward(const Tensor& grad, const std::optional<Tensor>& input, const Tensor& points,
                       const std::optional<Tensor>& grad_grad_input, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask, at::IntArrayRef derivative = {}) const {
    return Family::DoubleBackward::call(grad, input, points, grad_grad_input, grad_grad_points, size, order, border,
                                        output_mask, derivative);
  }
};
using Spline2d = Spline<op::Image>;
using Spline3d = Spline<op::Volume>;

class CudaSplineSample : public ::testing::TestWithParam<Dtypes> {
 protected:
  // A weight is computed in as many steps as the order.
  static Dtypes types() {
    Dtypes result = GetParam();
    result.tolerance *= 4;
    return result;
  }
};

TEST_P(CudaSplineSample, AnyOrderAndBorder) {
  const char* const borders[] = {"mirror", "reflect", "grid-wrap", "nearest", "grid-constant"};
  for (const int64_t order : {0, 1, 2, 3, 4, 5}) {
    const char* const border = borders[order % 5];
    SCOPED_TRACE(::testing::Message() << order << ", " << border);
    const Spline3d volume{{4, 1, 3}, order, border};
    expect_close(volume, with_gradients(volume, random({4, 1, 3, 2}), random({20, 3}, -3, 6)), types());
    const Spline2d image{{4, 3}, order, border};
    expect_close(image, with_gradients(image, random({4, 3, 3}), random({40, 2}, -3, 6)), types());
  }
}

TEST_P(CudaSplineSample, AnyLayout) {
  for (const Layout layout : layouts) {
    const Spline3d volume{{3, 2, 3}, 2};
    expect_close(volume, with_gradients(volume, random({2, 3, 2, 3, 9}), random({2, 5, 3}, -1, 3)), types(), layout);
  }
}

TEST_P(CudaSplineSample, NumbersThatAreNone) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor points = at::tensor({std::nan(""), 0.0, infinity, 1.0, 1.0, -infinity}, at::kDouble).view({3, 2});
  const Tensor input = on_cuda(at::ones({3, 2, 1}, GetParam().narrow)), p = on_cuda(points.to(GetParam().wide));
  const Spline2d clamped{{}, 3, "nearest"}, periodic{{}, 3, "grid-wrap"};
  const Tensor nearest = clamped.forward(input, p).cpu().to(at::kDouble);
  EXPECT_TRUE(nearest.isnan().flatten().equal(at::tensor({1, 0, 0}).to(at::kBool)));
  EXPECT_TRUE(close(nearest.slice(0, 1), at::ones({2, 1}), GetParam().tolerance));
  EXPECT_TRUE(periodic.forward(input, p).cpu().isnan().all().item<bool>());
}

TEST_P(CudaSplineSample, Filters) {
  using Prefilter = cppcuda::ops::spline_prefilter::Prefilter3d;
  const char* const borders[] = {"mirror", "reflect", "grid-wrap"};
  for (const int64_t order : {1, 2, 3, 4, 5}) {
    const Tensor input = random({2, 5, 1, 4, 3}).to(GetParam().narrow);
    const Tensor out = Prefilter::call(on_cuda(input), order, borders[order % 3]);
    const Tensor expected = Prefilter::call(input.to(at::kDouble), order, borders[order % 3]);
    EXPECT_TRUE(close(out.cpu() / 16, expected / 16, types().tolerance)) << order;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaSplineSample, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
