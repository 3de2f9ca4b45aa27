// Calls row_norm from C++, without Python. Change: the expected value.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <my_ops/row_norm.h>

TEST(RowNorm, ValueAndGradient) {
  const at::Tensor x = at::randn({5, 7}, at::kDouble).requires_grad_(), same = x.detach().clone().requires_grad_();
  const at::Tensor actual = my_ops::row_norm(x, 1e-3), expected = same / at::sqrt((same * same).mean(-1, true) + 1e-3);
  EXPECT_TRUE(at::allclose(actual, expected));
  const at::Tensor grad = at::randn({5, 7}, at::kDouble);
  actual.backward(grad);
  expected.backward(grad);
  EXPECT_TRUE(at::allclose(x.grad(), same.grad()));
}
