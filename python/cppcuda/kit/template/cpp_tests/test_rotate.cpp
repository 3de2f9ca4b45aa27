// Calls rotate from C++, without Python. Change: the expected value.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <my_ops/rotate.h>

TEST(Rotate, ValueAndGradient) {
  // a quarter turn about the z axis
  const at::Tensor q = at::tensor({0.5, 0.0, 0.0, 0.5}, at::kDouble) * std::sqrt(2.0);
  const at::Tensor v = at::randn({5, 3}, at::kDouble).requires_grad_();
  const at::Tensor actual = my_ops::rotate(q, v), xyz = v.detach();
  EXPECT_TRUE(at::allclose(actual, at::stack({-xyz.select(1, 1), xyz.select(1, 0), xyz.select(1, 2)}, 1)));
  actual.select(1, 0).sum().backward();
  EXPECT_TRUE(at::allclose(v.grad(), at::tensor({0.0, -1.0, 0.0}, at::kDouble).expand({5, 3})));
}
