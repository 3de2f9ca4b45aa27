// Runs the CUDA kernels of row_norm in the emulator and compares them with the CPU kernels. Change: the arguments.
#include "elementwise/row_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <my_ops/row_norm.h>

#include "cppcuda/kit/elementwise/family.h"

namespace {

void expect_close(const at::Tensor& cuda, const at::Tensor& cpu) {
  const double tolerance = cpu.element_size() == 2 ? 4e-2 : cpu.element_size() == 4 ? 1e-4 : 1e-12;
  const at::Tensor actual = cuda.cpu().to(at::kDouble), expected = cpu.to(at::kDouble);
  // The error of a sum is relative to its terms, not to their sum.
  EXPECT_TRUE(at::allclose(actual, expected, tolerance, tolerance * expected.abs().max().item<double>()))
      << cpu.dtype();
}

void check(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& grad) {
  using Ops = cppcuda::kit::RowOps<my_ops::RowNorm>;
  const c10::List<bool> both({true, true});
  const auto cuda = [](const at::Tensor& t) { return t.to(at::kCUDA); };
  expect_close(my_ops::row_norm(cuda(input), cuda(weight), 1e-3), my_ops::row_norm(input, weight, 1e-3));
  const auto [output, rstd] = Ops::Whole::call(input, weight, 1e-3);
  const auto [cuda_output, cuda_rstd] = Ops::Whole::call(cuda(input), cuda(weight), 1e-3);
  expect_close(cuda_output, output);
  expect_close(cuda_rstd, rstd);
  const auto on_cpu = Ops::Backward::call(grad, rstd, input, weight, 1e-3, both);
  const auto on_cuda = Ops::Backward::call(cuda(grad), cuda_rstd, cuda(input), cuda(weight), 1e-3, both);
  expect_close(std::get<0>(on_cuda), std::get<0>(on_cpu));
  expect_close(std::get<1>(on_cuda), std::get<1>(on_cpu));
}

TEST(EmulatedRowNorm, EqualsTheCpu) {
  at::manual_seed(0);
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const auto noise = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(dtype); };
    check(noise({2, 11, 70}), noise({70}), noise({2, 11, 70}));
    check(noise({70, 11, 2}).permute({2, 1, 0}), noise({11, 70}), noise({1, 11, 70}).expand({2, 11, 70}));
    check(noise({3, 4099}), noise({4099}), noise({3, 4099}));  // a block computes a row
  }
}

}  // namespace
