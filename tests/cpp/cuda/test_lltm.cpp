#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "cuda_testing.h"
#include "lltm_testing.h"
#include "ops/lltm_cell/op.h"

namespace {

using namespace cppcuda::testing;
using cppcuda::ops::lltm_cell::Steps;
using cppcuda::ops::lltm_cell::StepsBackward;

struct Sizes {
  int64_t steps, rows, inputs, size;
};

// More rows than the emulator's blocks take at once, and sizes on both sides of the numbers of weights in registers.
constexpr Sizes all_sizes[] = {{1, 1, 1, 1},  {3, 5, 2, 7},   {2, 3, 0, 32},  {2, 2, 3, 33}, {3, 1, 4, 64},
                               {2, 2, 3, 65}, {2, 3, 2, 128}, {2, 2, 3, 129}, {2, 205, 1, 3}};

class CudaLltm : public ::testing::TestWithParam<Dtypes> {
 protected:
  // input, weight, bias, h0, c0
  static std::vector<Tensor> arguments(const Sizes& sizes, at::IntArrayRef group = {}) {
    const auto [steps, rows, inputs, size] = sizes;
    auto make = [&](std::vector<int64_t> shape, at::ScalarType dtype, double scale = 0.5) {
      shape.insert(shape.begin(), group.begin(), group.end());
      return (at::randn(shape, at::kDouble) * scale).to(dtype);
    };
    const auto [name, narrow, wide, tolerance] = GetParam();
    // Products stay small, however many terms they have.
    const double scale = 0.5 / std::sqrt(static_cast<double>(size + inputs));
    return {make({steps, rows, inputs}, narrow), make({3 * size, size + inputs}, narrow, scale),
            make({3 * size}, narrow), make({rows, size}, narrow), make({rows, size}, wide)};
  }

  static auto forward(const std::vector<Tensor>& a) {
    return cppcuda::kit::to_array(
        Steps::call(on_cuda(a[0]), on_cuda(a[1]), on_cuda(a[2]), on_cuda(a[3]), on_cuda(a[4])));
  }

  // Checks values, and the gradients of the arguments for gradients of those outputs that `given` has bits for.
  static void check(const std::vector<Tensor>& a, int given) {
    std::vector<Tensor> exact;
    for (const Tensor& t : a) exact.push_back(t.to(at::kDouble).requires_grad_());
    const auto expected = reference_sequence(exact);
    const auto actual = forward(a);
    const double tolerance = 8 * GetParam().tolerance;  // every step rounds the state
    std::vector<Tensor> outputs, grads;
    std::optional<Tensor> of_outputs[5];
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(close(actual[i].cpu(), expected[i].detach(), tolerance)) << "output " << i;
      if ((given >> i & 1) == 0) continue;
      const Tensor grad = (at::randn(expected[i].sizes(), at::kDouble) * 0.5).to(actual[i].scalar_type());
      of_outputs[i] = on_cuda(grad);
      outputs.push_back(expected[i]);
      grads.push_back(grad.to(at::kDouble));
    }
    const auto gradients = torch::autograd::grad(outputs, exact, grads, std::nullopt, false, /*allow_unused=*/true);
    const auto found = cppcuda::kit::to_array(StepsBackward::call(
        of_outputs[0], of_outputs[1], of_outputs[2], of_outputs[3], of_outputs[4], actual[0], actual[3], actual[4],
        on_cuda(a[0]), on_cuda(a[1]), on_cuda(a[3]), on_cuda(a[4]), c10::List<bool>({true, true, true, true, true})));
    for (size_t i = 0; i < 5; ++i) {
      const Tensor e = gradients[i].defined() ? gradients[i] : at::zeros_like(exact[i]).detach();
      // Sums over steps and rows.
      const double terms = i == 1 || i == 2 ? 4 * std::sqrt(static_cast<double>(a[0].size(-3) * a[0].size(-2))) : 4;
      EXPECT_TRUE(close(found[i].cpu(), e, terms * tolerance)) << "gradient of argument " << i;
    }
  }
};

TEST_P(CudaLltm, ValuesAndGradients) {
  for (const auto& sizes : all_sizes) {
    SCOPED_TRACE(::testing::Message() << sizes.steps << ", " << sizes.rows << ", " << sizes.inputs << ", "
                                      << sizes.size);
    check(arguments(sizes), 0b11111);
  }
  check(arguments({2, 3, 2, 5}, {2}), 0b11111);
}

TEST_P(CudaLltm, SomeGradientsAreGiven) {
  for (const int given : {0b00001, 0b00010, 0b00100, 0b01000, 0b10000, 0b00110}) {
    SCOPED_TRACE(::testing::Message() << "given " << given);
    check(arguments({3, 4, 2, 5}), given);
  }
}

// There is no input, because its products are torch's.
TEST_P(CudaLltm, RowsDoNotDependOnTheirBlock) {
  const auto a = arguments({3, 205, 0, 6});
  const auto all = forward(a);
  const auto of_row = [](const Tensor& t, int64_t r) { return t.narrow(-2, r, 1).contiguous(); };
  for (const int64_t r : {0, 7, 204}) {
    const auto one = forward({of_row(a[0], r), a[1], a[2], of_row(a[3], r), of_row(a[4], r)});
    for (const size_t i : {0, 3}) EXPECT_TRUE(at::equal(one[i].cpu(), of_row(all[i].cpu(), r)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaLltm, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
