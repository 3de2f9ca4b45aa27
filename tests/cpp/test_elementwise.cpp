#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <cppcuda/cppcuda.h>

#include "cppcuda/kit/elementwise/math.h"
#include "testing.h"

namespace {

using cppcuda::kit::detail::has_supported_types;
static_assert(has_supported_types("a::f(Tensor x, Tensor y, float a, int b=2, bool c=False, float? d=None)"));
static_assert(!has_supported_types("a::f(float a, Tensor x)"));
static_assert(!has_supported_types("a::f(Tensor x, Tensor? y)"));
static_assert(!has_supported_types("a::f(Tensor x, str mode)"));
static_assert(!has_supported_types("a::f(Tensor x, int[] sizes)"));

using at::Tensor;
using cppcuda::testing::error_of;

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static Tensor call(const Tensor& x) { return cppcuda::sigmoid(x); }
  static Tensor& call_(Tensor& x) { return cppcuda::sigmoid_(x); }
  static Tensor& call_out(Tensor& out, const Tensor& x) { return cppcuda::sigmoid_out(out, x); }
};

struct QuickGelu {
  static constexpr const char* name = "quick_gelu";
  static Tensor call(const Tensor& x) { return cppcuda::quick_gelu(x); }
  static Tensor& call_(Tensor& x) { return cppcuda::quick_gelu_(x); }
  static Tensor& call_out(Tensor& out, const Tensor& x) { return cppcuda::quick_gelu_out(out, x); }
};

template <class Op>
class Elementwise : public ::testing::Test {
 protected:
  static std::string error(const std::string& text) { return Op::name + text; }
};
using Ops = ::testing::Types<Sigmoid, QuickGelu>;
TYPED_TEST_SUITE(Elementwise, Ops);

TYPED_TEST(Elementwise, InPlaceAndOut) {
  const at::NoGradGuard no_grad;
  const Tensor x = at::randn({5, 7});
  const Tensor expected = TypeParam::call(x);
  Tensor out = at::empty({7, 5}).t(), self = x.clone();
  EXPECT_TRUE(TypeParam::call_out(out, x).is_same(out));
  EXPECT_TRUE(at::equal(out, expected));
  const auto version = self._version();
  EXPECT_TRUE(TypeParam::call_(self).is_same(self));
  EXPECT_TRUE(at::equal(self, expected));
  EXPECT_EQ(self._version(), version + 1);
}

TYPED_TEST(Elementwise, LostGradientIsAnError) {
  const std::string functional = std::string("call ") + TypeParam::name;
  Tensor x = at::randn({3}).requires_grad_();
  EXPECT_EQ(error_of([&] { TypeParam::call_(x); }),
            this->error("_: self requires a gradient, which a call that writes to self loses; ") + functional +
                "(self) instead, or this one under torch.no_grad()");
  Tensor out = at::empty({3});
  EXPECT_EQ(error_of([&] { TypeParam::call_out(out, x); }),
            this->error(": input requires a gradient, which a call that writes to out loses; ") + functional +
                "(input) instead, or this one under torch.no_grad()");
  const c10::InferenceMode inference;
  EXPECT_EQ(error_of([&] { TypeParam::call_out(out, x); }), "no error");
}

}  // namespace
