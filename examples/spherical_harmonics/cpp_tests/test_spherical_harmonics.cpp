// Calls spherical_harmonics from C++, without Python.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sph/spherical_harmonics.h>

#include <cmath>

TEST(SphericalHarmonics, ValuesAndGradient) {
  const at::Tensor xyz = at::randn({5, 3}, at::kDouble).requires_grad_(), same = xyz.detach().clone().requires_grad_();
  const at::Tensor actual = sph::spherical_harmonics(xyz, 1, /*normalize=*/false);
  const at::Tensor constant = at::full({5, 1}, std::sqrt(1 / (4 * M_PI)), at::kDouble);
  const at::Tensor linear = std::sqrt(3 / (4 * M_PI)) * same.index_select(1, at::tensor({1, 2, 0}));  // y, z, x
  const at::Tensor expected = at::cat({constant, linear}, 1);
  EXPECT_TRUE(at::allclose(actual, expected));
  const at::Tensor grad = at::randn({5, 4}, at::kDouble);
  actual.backward(grad);
  expected.backward(grad);
  EXPECT_TRUE(at::allclose(xyz.grad(), same.grad()));
}
