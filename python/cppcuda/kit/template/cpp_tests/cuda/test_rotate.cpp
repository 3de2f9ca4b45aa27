// Runs the CUDA kernels of rotate in the emulator and compares them with the CPU kernels. Change: the arguments.
#include "elementwise/rotate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <my_ops/rotate.h>

#include "cppcuda/kit/elementwise/family.h"

namespace {

void expect_close(const at::Tensor& cuda, const at::Tensor& cpu) {
  const double tolerance = cpu.element_size() == 2 ? 4e-2 : cpu.element_size() == 4 ? 1e-5 : 1e-12;
  const at::Tensor actual = cuda.cpu().to(at::kDouble), expected = cpu.to(at::kDouble);
  // The error of a sum is relative to its terms, not to their sum.
  EXPECT_TRUE(at::allclose(actual, expected, tolerance, tolerance * expected.abs().max().item<double>()))
      << cpu.dtype();
}

TEST(EmulatedRotate, EqualsTheCpu) {
  using Ops = cppcuda::kit::ElementwiseOps<my_ops::Rotate>;
  const c10::List<bool> two({true, true}), three({true, true, true});
  at::manual_seed(0);
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const auto noise = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(dtype); };
    const at::Tensor q = noise({33, 4}), v = noise({3, 33}).t(), grad = noise({33, 3});
    const auto cuda = [](const at::Tensor& t) { return t.to(at::kCUDA); };
    for (const at::Tensor& one : {q, q[0]}) {  // a rotation for each vector, and one for all
      expect_close(my_ops::rotate(cuda(one), cuda(v)), my_ops::rotate(one, v));
      const auto on_cuda = Ops::Backward::call(cuda(grad), cuda(one), cuda(v), two);
      const auto on_cpu = Ops::Backward::call(grad, one, v, two);
      expect_close(std::get<0>(on_cuda), std::get<0>(on_cpu));
      expect_close(std::get<1>(on_cuda), std::get<1>(on_cpu));
    }
    const auto second = [&](auto move) {
      return Ops::DoubleBackward::call(move(grad), move(q), move(v), move(q), move(v), three);
    };
    const auto on_cuda = second(cuda), on_cpu = second([](const at::Tensor& t) { return t; });
    expect_close(std::get<0>(on_cuda), std::get<0>(on_cpu));
    expect_close(std::get<1>(on_cuda), std::get<1>(on_cpu));
    expect_close(std::get<2>(on_cuda), std::get<2>(on_cpu));
  }
}

}  // namespace
