// Calls row_norm from C++, without Python. Change: the expected value.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <my_ops/row_norm.h>

TEST(RowNorm, ValueAndGradients) {
  const auto variable = [](const at::Tensor& t) { return t.detach().clone().requires_grad_(); };
  const at::Tensor x = variable(at::randn({5, 7}, at::kDouble)), same_x = variable(x);
  const at::Tensor w = variable(at::randn({7}, at::kDouble)), same_w = variable(w);
  const at::Tensor actual = my_ops::row_norm(x, w, 1e-3);
  const at::Tensor expected = same_w * same_x / at::sqrt((same_x * same_x).mean(-1, true) + 1e-3);
  EXPECT_TRUE(at::allclose(actual, expected));
  const at::Tensor grad = at::randn({5, 7}, at::kDouble);
  actual.backward(grad);
  expected.backward(grad);
  EXPECT_TRUE(at::allclose(x.grad(), same_x.grad()));
  EXPECT_TRUE(at::allclose(w.grad(), same_w.grad()));
}
