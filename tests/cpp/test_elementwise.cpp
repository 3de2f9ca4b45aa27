#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>

#include "elementwise/family.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using cppcuda::testing::on_device;
using torch::autograd::grad;

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  using Definition = cppcuda::elementwise::Sigmoid;
  static Tensor call(const Tensor& x) { return cppcuda::sigmoid(x); }
  static Tensor& call_(Tensor& x) { return cppcuda::sigmoid_(x); }
  static Tensor& call_out(Tensor& out, const Tensor& x) { return cppcuda::sigmoid_out(out, x); }
  static Tensor reference(const Tensor& x) { return at::sigmoid(x); }
  // The slope from the scalar formula, as a function of x.
  static double slope(double x) { return Definition::slope(Definition::forward(x)); }
};

struct QuickGelu {
  static constexpr const char* name = "quick_gelu";
  using Definition = cppcuda::elementwise::QuickGelu;
  static Tensor call(const Tensor& x) { return cppcuda::quick_gelu(x); }
  static Tensor& call_(Tensor& x) { return cppcuda::quick_gelu_(x); }
  static Tensor& call_out(Tensor& out, const Tensor& x) { return cppcuda::quick_gelu_out(out, x); }
  static Tensor reference(const Tensor& x) { return x * at::sigmoid(1.702 * x); }
  static double slope(double x) { return Definition::slope(x); }
};

template <class Op>
class Elementwise : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(0); }
  static std::string error(const std::string& text) { return Op::name + text; }
};
using Ops = ::testing::Types<Sigmoid, QuickGelu>;
TYPED_TEST_SUITE(Elementwise, Ops);

TYPED_TEST(Elementwise, ValuesInEveryDtype) {
  for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-14}, std::pair{at::kFloat, 1e-6},
                                         std::pair{at::kHalf, 1e-3}, std::pair{at::kBFloat16, 8e-3}}) {
    for (const int64_t n : {0, 1, 2, 3, 7, 8, 9, 1000, 100003}) {
      const Tensor x = (4 * at::randn({n})).to(dtype);
      const Tensor y = TypeParam::call(x);
      EXPECT_EQ(y.scalar_type(), dtype);
      EXPECT_TRUE(close(y, TypeParam::reference(x.to(at::kDouble)), tolerance)) << n;
    }
  }
}

TYPED_TEST(Elementwise, GradientsOfThreeOrders) {
  const Tensor x = (3 * at::randn({40}, at::kDouble)).requires_grad_();
  Tensor ours = TypeParam::call(x), plain = TypeParam::reference(x);
  for (int order = 1; order <= 3; ++order) {
    ours = grad({(ours * ours).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    plain = grad({(plain * plain).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_TRUE(close(ours, plain, 1e-10)) << order;
  }
}

// The header's derivative is the derivative of the header's formula.
TYPED_TEST(Elementwise, SlopeIsTheFiniteDifference) {
  const auto f = [](double x) { return TypeParam::Definition::forward(x); };
  for (double x = -30; x <= 30; x += 0.37) {
    const double h = 1e-5;
    EXPECT_NEAR(TypeParam::slope(x), (f(x + h) - f(x - h)) / (2 * h), 1e-8) << x;
  }
}

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

TYPED_TEST(Elementwise, Errors) {
  const Tensor undefined;
  Tensor out = at::empty({2});
  EXPECT_EQ(error_of([&] { TypeParam::call(undefined); }),
            this->error(": input must be a Tensor, got an undefined Tensor"));
  EXPECT_EQ(error_of([&] { TypeParam::call_out(out, undefined); }),
            this->error(": input must be a Tensor, got an undefined Tensor"));
  EXPECT_EQ(error_of([&] { TypeParam::call(at::zeros({2}, at::kInt)); }),
            this->error(": input must be of dtype float64, float32, float16 or bfloat16, got int32"));
  EXPECT_EQ(error_of([&] { TypeParam::call_out(out, at::zeros({3})); }),
            this->error(": out must be [3], the shape of input, got [2]"));
  EXPECT_EQ(error_of([&] { TypeParam::call(on_device(at::kMPS, {2})); }).find(this->error(": input must be on cpu")),
            0);
}

TYPED_TEST(Elementwise, OneThreadOrMoreGiveTheSameBits) {
  const Tensor x = at::randn({300000});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = TypeParam::call(x);
  for (const int n : {2, 3}) {
    at::set_num_threads(n);
    EXPECT_TRUE(at::equal(TypeParam::call(x), one)) << n;
  }
  at::set_num_threads(threads);
}

}  // namespace
