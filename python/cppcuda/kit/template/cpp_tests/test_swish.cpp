// Calls swish from C++, without Python. Change: the expected value.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <my_ops/swish.h>

TEST(Swish, ValueAndGradient) {
  const at::Tensor x = at::randn({5, 7}, at::kDouble).requires_grad_(), same = x.detach().clone().requires_grad_();
  const at::Tensor actual = my_ops::swish(x, 1.5), expected = same * at::sigmoid(1.5 * same);
  EXPECT_TRUE(at::allclose(actual, expected));
  actual.sum().backward();
  expected.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), same.grad()));
}
