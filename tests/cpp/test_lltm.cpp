#include <cppcuda/cppcuda.h>

#include "testing.h"

namespace {

TEST(Lltm, NoStepsReturnTheFirstState) {
  const at::Tensor h = at::randn({3, 4}), c = at::randn({3, 4});
  const auto [output, hn, cn] = cppcuda::lltm(at::zeros({0, 3, 2}), at::zeros({12, 6}), at::zeros({12}), h, c);
  EXPECT_EQ(output.sizes(), (at::IntArrayRef{0, 3, 4}));
  EXPECT_TRUE(at::equal(hn, h) && at::equal(cn, c));
  EXPECT_FALSE(hn.is_alias_of(h) || cn.is_alias_of(c));
}

}  // namespace
