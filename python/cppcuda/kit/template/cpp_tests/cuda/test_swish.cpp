// Runs the CUDA kernels of swish in the emulator and compares them with the CPU kernels. Change: the arguments.
#include "elementwise/swish.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <my_ops/swish.h>

#include "cppcuda/kit/elementwise/family.h"

namespace {

void expect_close(const at::Tensor& cuda, const at::Tensor& cpu) {
  const double tolerance = cpu.element_size() == 2 ? 2e-2 : cpu.element_size() == 4 ? 1e-5 : 1e-12;
  const at::Tensor actual = cuda.cpu().to(at::kDouble), expected = cpu.to(at::kDouble);
  // The error of a sum is relative to its terms, not to their sum.
  EXPECT_TRUE(at::allclose(actual, expected, tolerance, tolerance * expected.abs().max().item<double>()))
      << cpu.dtype();
}

// These three kinds of memory have kernels of their own.
at::Tensor aligned(const at::Tensor& t) { return t; }
at::Tensor unaligned(const at::Tensor& t) { return t.flatten().slice(0, 1); }
at::Tensor strided(const at::Tensor& t) { return t.slice(1, 0, t.size(1), 2); }

TEST(EmulatedSwish, EqualsTheCpu) {
  using Ops = cppcuda::kit::ElementwiseOps<my_ops::Swish>;
  const c10::List<bool> both({true, true});
  at::manual_seed(0);
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor x = at::randn({33, 70}, at::kDouble).to(dtype), grad = at::randn({33, 70}, at::kDouble).to(dtype);
    const at::Tensor cuda_x = x.to(at::kCUDA), cuda_grad = grad.to(at::kCUDA);
    for (const auto view : {aligned, unaligned, strided}) {
      expect_close(my_ops::swish(view(cuda_x), 1.5), my_ops::swish(view(x), 1.5));
      expect_close(Ops::Backward::call(view(cuda_grad), view(cuda_x), 1.5),
                   Ops::Backward::call(view(grad), view(x), 1.5));
      const auto second = [&](const at::Tensor& g, const at::Tensor& x) {
        return Ops::DoubleBackward::call(view(g), view(x), view(g), 1.5, both);
      };
      const auto on_cuda = second(cuda_grad, cuda_x), on_cpu = second(grad, x);
      expect_close(std::get<0>(on_cuda), std::get<0>(on_cpu));
      expect_close(std::get<1>(on_cuda), std::get<1>(on_cpu));
    }
  }
}

}  // namespace
