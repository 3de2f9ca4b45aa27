#include <cppcuda/cppcuda.h>

#include "ops/trilinear_indexed/op.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::error_of;

TEST(TrilinearIndexed, MissingVerticesAreNotRead) {
  const Tensor table = at::randn({6, 5});
  table[0].fill_(NAN);
  table[5].fill_(NAN);
  table.requires_grad_();
  const Tensor corners = at::randint(1, 5, {40, 8}, at::kLong).masked_fill(at::rand({40, 8}).lt(0.5), -1);
  const Tensor out = cppcuda::trilinear_indexed(table, corners, at::rand({40, 3}));
  EXPECT_FALSE(out.isnan().any().item<bool>());
  out.sum().backward();
  EXPECT_FALSE(table.grad()[0].any().item<bool>());
  EXPECT_FALSE(table.grad()[5].any().item<bool>());
}

TEST(TrilinearIndexed, IndexErrorsNameTheFirstOffender) {
  using cppcuda::ops::trilinear_indexed::Backward;
  const Tensor table = at::randn({5, 3}), corners = at::zeros({4, 8}, at::kLong), points = at::rand({4, 3});
  corners[1][3] = 7;
  corners[2][0] = -5;
  const std::string rest = ": corners must be in [-1, V) with V = 5, got 7 at [1, 3]";
  const auto forward = [&] { cppcuda::trilinear_indexed(table, corners, points); };
  EXPECT_THROW(forward(), c10::IndexError);
  EXPECT_EQ(error_of(forward), "trilinear_indexed" + rest);
  EXPECT_EQ(error_of([&] { cppcuda::trilinear_indexed_with_grad(table, corners, points); }),
            "trilinear_indexed_with_grad" + rest);
  EXPECT_EQ(error_of([&] {
              Backward::call(at::ones({4, 3}), table, corners, points, c10::SymIntArrayRef{5},
                             c10::List<bool>({true, true}));
            }),
            "_trilinear_indexed_backward" + rest);
}

}  // namespace
