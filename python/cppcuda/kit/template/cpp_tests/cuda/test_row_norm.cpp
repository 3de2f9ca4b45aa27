// Runs the CUDA kernels of row_norm in the emulator and compares them with the CPU kernels. Change: the arguments.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/row_norm/op.h"

namespace {

using namespace my_ops::ops::row_norm;

void expect_close(const at::Tensor& cuda, const at::Tensor& cpu) {
  const double tolerance = cpu.element_size() == 2 ? 2e-2 : cpu.element_size() == 4 ? 1e-5 : 1e-12;
  EXPECT_TRUE(at::allclose(cuda.cpu().to(at::kDouble), cpu.to(at::kDouble), tolerance, tolerance)) << cpu.dtype();
}

void check(const at::Tensor& input, const at::Tensor& grad, const at::Tensor& cuda_input, const at::Tensor& cuda_grad) {
  const auto [output, rstd] = ForwardWithRstd::call(input, 1e-3);
  const auto [cuda_output, cuda_rstd] = ForwardWithRstd::call(cuda_input, 1e-3);
  expect_close(cuda_output, output);
  expect_close(cuda_rstd, rstd);
  expect_close(Forward::call(cuda_input, 1e-3), output);
  expect_close(Backward::call(cuda_grad, cuda_rstd, cuda_input), Backward::call(grad, rstd, input));
}

TEST(EmulatedRowNorm, EqualsTheCpu) {
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor input = at::randn({2, 11, 70}, at::kDouble).to(dtype),
                     grad = at::randn({2, 11, 70}, at::kDouble).to(dtype);
    const at::Tensor cuda_input = input.to(at::kCUDA), cuda_grad = grad.to(at::kCUDA);
    check(input, grad, cuda_input, cuda_grad);
    const auto half = [](const at::Tensor& t) { return t.slice(1, 0, 11, 2).slice(2, 0, 70, 2); };
    check(half(input), half(grad), half(cuda_input), half(cuda_grad));
    const auto expanded = [](const at::Tensor& t) { return t[0].expand({3, 11, 70}); };
    check(expanded(input), expanded(grad), expanded(cuda_input), expanded(cuda_grad));
  }
}

}  // namespace
