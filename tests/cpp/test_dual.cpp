// Compares dual numbers (kit/math/dual.h) over numbers and over tensors (kit/elementwise/tensor_value.h) with torch's
// own derivatives of the same formulas in float64, to third order.
#include "cppcuda/kit/elementwise/tensor_value.h"
#include "cppcuda/kit/math/dual.h"
#include "testing.h"

#include <torch/autograd.h>

namespace {

using at::Tensor;
using cppcuda::kit::Dual;
using cppcuda::kit::TensorValue;
using cppcuda::testing::close;
namespace kit = cppcuda::kit;

// Each has a formula f on any A, and the same in torch.
struct Sums {
  template <class A>
  static A f(A x) {
    return A(2) - x + x * x * x * x - A(3) + -x;
  }
  static Tensor torch(const Tensor& x) { return 2 - x + x * x * x * x - 3 + -x; }
};
struct Quotient {
  template <class A>
  static A f(A x) {
    return (A(2) * x - A(1)) / (x * x + A(3)) / A(2) + A(5) / (A(4) + x);
  }
  static Tensor torch(const Tensor& x) { return (2 * x - 1) / (x * x + 3) / 2 + 5 / (4 + x); }
};
struct ExpAndTanh {
  template <class A>
  static A f(A x) {
    using std::exp, std::tanh;
    return exp(-x) * tanh(x) + exp(A(0.5)) * tanh(A(0.5));
  }
  static Tensor torch(const Tensor& x) { return at::exp(-x) * at::tanh(x) + std::exp(0.5) * std::tanh(0.5); }
};
struct Abs {
  template <class A>
  static A f(A x) {
    using std::abs, std::exp;
    return abs(x) * exp(-abs(x));
  }
  static Tensor torch(const Tensor& x) { return at::abs(x) * at::exp(-at::abs(x)); }
};
struct SelectOfTensors {
  template <class A>
  static A f(A x) {
    using kit::select, std::exp;
    return select(x < A(0.25), x * x, exp(x));
  }
  static Tensor torch(const Tensor& x) { return at::where(x < 0.25, x * x, at::exp(x)); }
};
struct SelectWithANumber {
  template <class A>
  static A f(A x) {
    using kit::select;
    return select(x > A(0.25), x * x * x, A(7));
  }
  static Tensor torch(const Tensor& x) { return at::where(x > 0.25, x * x * x, 7.0); }
};
struct LogisticFunction {
  template <class A>
  static A f(A x) {
    return x * kit::logistic(x * A(1.5));
  }
  static Tensor torch(const Tensor& x) { return x * at::sigmoid(x * 1.5); }
};
struct SlopeOfTheLogistic {
  template <class A>
  static A f(A x) {
    return kit::Logistic<A>(x * x).slope();
  }
  static Tensor torch(const Tensor& x) { return at::sigmoid(x * x) * (1 - at::sigmoid(x * x)); }
};

// A function of one argument, at values that it is defined for.
#define ONE(name, argument)                                             \
  struct Of_##name {                                                    \
    template <class A>                                                  \
    static A f(A x) {                                                   \
      return kit::name(argument);                                       \
    }                                                                   \
    static Tensor torch(const Tensor& x) { return at::name(argument); } \
  };
#define TWO(name, first, second)                                             \
  struct Of_##name {                                                         \
    template <class A>                                                       \
    static A f(A x) {                                                        \
      return kit::name(first, second);                                       \
    }                                                                        \
    static Tensor torch(const Tensor& x) { return at::name(first, second); } \
  };
template <class A>
A above_zero(A x) {
  return x * x + A(0.5);
}
Tensor above_zero(const Tensor& x) { return x * x + 0.5; }
template <class A>
A below_one(A x) {
  return x * A(0.4);
}
Tensor below_one(const Tensor& x) { return x * 0.4; }
ONE(acos, below_one(x))
ONE(asin, below_one(x))
ONE(atan, x)
ONE(cos, x)
ONE(cosh, x)
ONE(erf, x)
ONE(erfc, x)
ONE(exp, x)
ONE(exp2, x)
ONE(expm1, x)
ONE(log, above_zero(x))
ONE(log1p, above_zero(x))
ONE(log2, above_zero(x))
ONE(sin, x)
ONE(sinh, x)
ONE(sqrt, above_zero(x))
ONE(tan, below_one(x))
ONE(tanh, x)
TWO(atan2, x, above_zero(x))
TWO(copysign, above_zero(x), x)
TWO(fmod, x* x* above_zero(x), below_one(x))
TWO(hypot, x, above_zero(x))
TWO(pow, above_zero(x), x)
#undef ONE
#undef TWO
struct CubeRoot {
  template <class A>
  static A f(A x) {
    return kit::cbrt(above_zero(x));
  }
  static Tensor torch(const Tensor& x) { return at::pow(above_zero(x), 1.0 / 3); }
};
// Powers of a number and to a number, and a comparison of numbers.
struct Powers {
  template <class A>
  static A f(A x) {
    const A p(2.5);
    return kit::pow(above_zero(x), p) + kit::pow(A(2), x) + kit::select(p > A(0), kit::sin(x), x);
  }
  static Tensor torch(const Tensor& x) { return at::pow(above_zero(x), 2.5) + at::pow(2.0, x) + at::sin(x); }
};
struct SoftplusFunction {
  template <class A>
  static A f(A x) {
    return kit::softplus(x);
  }
  static Tensor torch(const Tensor& x) { return at::softplus(x); }
};
struct MaxAndMin {
  template <class A>
  static A f(A x) {
    return kit::max(x * x, x) * kit::min(x, A(1));
  }
  static Tensor torch(const Tensor& x) { return at::maximum(x * x, x) * at::minimum(x, at::ones({}, x.options())); }
};
struct Rounded {
  template <class A>
  static A f(A x) {
    return x * (kit::floor(x) + kit::ceil(x) * kit::trunc(x) - kit::round(x)) + x * x * x * x;
  }
  static Tensor torch(const Tensor& x) {
    return x * (at::floor(x) + at::ceil(x) * at::trunc(x) - at::round(x)) + x * x * x * x;
  }
};

using Formulas =
    ::testing::Types<Sums, Quotient, ExpAndTanh, Abs, SelectOfTensors, SelectWithANumber, LogisticFunction,
                     SlopeOfTheLogistic, Of_acos, Of_asin, Of_atan, Of_cos, Of_cosh, Of_erf, Of_erfc, Of_exp, Of_exp2,
                     Of_expm1, Of_log, Of_log1p, Of_log2, Of_sin, Of_sinh, Of_sqrt, Of_tan, Of_tanh, Of_atan2,
                     Of_copysign, Of_fmod, Of_hypot, Of_pow, CubeRoot, MaxAndMin, Powers, SoftplusFunction, Rounded>;

Tensor gradient(const Tensor& y, const Tensor& x) {
  return torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

// The value of the formula and its first three derivatives.
template <class Formula>
std::array<Tensor, 4> expected(const Tensor& at) {
  const Tensor x = at.detach().requires_grad_();
  std::array<Tensor, 4> result{Formula::torch(x)};
  for (size_t i = 1; i < 4; ++i) result[i] = gradient(result[i - 1], x);
  return result;
}

template <class Formula>
class DualOf : public ::testing::Test {};
TYPED_TEST_SUITE(DualOf, Formulas);

TYPED_TEST(DualOf, OverTensorsHasTheDerivativesOfTorch) {
  const Tensor x = at::linspace(-2, 2, 12, at::kDouble).requires_grad_();
  const Tensor first = at::linspace(0.5, 3, 12, at::kDouble), second = at::linspace(1, -1, 12, at::kDouble);
  using A = Dual<Dual<TensorValue>>;
  const Dual<TensorValue> along{TensorValue(x), TensorValue(first)};
  const A y = TypeParam::f(A(along, Dual<TensorValue>::constant(TensorValue(second))));
  const auto want = expected<TypeParam>(x);
  const auto tensor = [&](const TensorValue& v) { return v.like(x); };
  EXPECT_TRUE(close(tensor(y.value.value), want[0], 1e-14));
  EXPECT_TRUE(close(tensor(y.value.tangent), want[1] * first, 1e-13));
  EXPECT_TRUE(close(tensor(y.tangent.value), want[1] * second, 1e-13));
  EXPECT_TRUE(close(tensor(y.tangent.tangent), want[2] * first * second, 1e-12));
  EXPECT_TRUE(close(gradient(tensor(y.tangent.tangent), x), want[3] * first * second, 1e-12));
}

TYPED_TEST(DualOf, OverNumbersHasTheDerivativesOfTorch) {
  using A = Dual<Dual<Dual<double>>>;
  const Tensor x = at::linspace(-2, 2, 12, at::kDouble);
  const auto want = expected<TypeParam>(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const Dual<double> once(x[i].item<double>(), 1);
    const Dual<Dual<double>> twice(once, Dual<double>(1.0));
    const A y = TypeParam::f(A(twice, Dual<Dual<double>>(1.0)));
    const double actual[] = {y.value.value.value, y.value.value.tangent, y.value.tangent.tangent,
                             y.tangent.tangent.tangent};
    for (size_t order = 0; order < 4; ++order) {
      EXPECT_NEAR(actual[order], want[order][i].template item<double>(), 1e-12) << "order " << order << " at " << i;
    }
  }
}

TYPED_TEST(DualOf, DoesNotVaryOverConstants) {
  EXPECT_FALSE(TypeParam::f(Dual<TensorValue>::constant(TensorValue(at::ones({3})))).varies);
  EXPECT_TRUE(TypeParam::f(Dual<TensorValue>(TensorValue(at::ones({3})), TensorValue(1.0))).varies);
}

TYPED_TEST(DualOf, KeepsTheDtypeOfTensorsBesideNumbers) {
  const Tensor x = at::linspace(-1, 1, 5, at::kFloat);
  const auto y = TypeParam::f(Dual<TensorValue>(TensorValue(x), TensorValue(x)));
  EXPECT_EQ(y.value.like(x).scalar_type(), at::kFloat);
  EXPECT_EQ(y.tangent.like(x).scalar_type(), at::kFloat);
}

TEST(Dual, TheDerivativeOfAbsAtZeroIsThatOfTorch) {
  for (const double at : {0.0, -0.0, 2.0, -2.0}) {
    const Tensor x = at::full({1}, at, at::kDouble).requires_grad_();
    EXPECT_EQ(abs(Dual<double>(at, 1)).tangent, gradient(at::abs(x), x).item<double>()) << at;
  }
  EXPECT_TRUE(std::isnan(abs(Dual<double>(NAN, 1)).tangent));
}

// Where both arguments of max or min are equal, or one is NaN, and at the ends of pow's domain.
TEST(Dual, TheDerivativesAtKinksAreThoseOfTorch) {
  const auto expect_equal = [](auto f, auto torch, double a, double b) {
    const Tensor x = at::full({1}, a, at::kDouble).requires_grad_(), y = at::full({1}, b, at::kDouble).requires_grad_();
    const auto expected = torch::autograd::grad({torch(x, y)}, {x, y});
    const Dual<double> by_x = f(Dual<double>(a, 1), Dual<double>(b)), by_y = f(Dual<double>(a), Dual<double>(b, 1));
    EXPECT_EQ(by_x.tangent, expected[0].template item<double>()) << a << ", " << b;
    EXPECT_EQ(by_y.tangent, expected[1].template item<double>()) << a << ", " << b;
  };
  for (const double a : {-1.0, 0.0, 2.0, double(INFINITY)}) {
    expect_equal([](auto x, auto y) { return kit::max(x, y); }, [](auto x, auto y) { return at::maximum(x, y); }, a, a);
    expect_equal([](auto x, auto y) { return kit::min(x, y); }, [](auto x, auto y) { return at::minimum(x, y); }, a, a);
  }
  for (const auto& [a, b] : {std::pair(NAN, 1.0), {1.0, NAN}, {NAN, NAN}}) {
    expect_equal([](auto x, auto y) { return kit::max(x, y); }, [](auto x, auto y) { return at::maximum(x, y); }, a, b);
    expect_equal([](auto x, auto y) { return kit::min(x, y); }, [](auto x, auto y) { return at::minimum(x, y); }, a, b);
  }
  for (const auto& [a, b] : {std::pair(0.0, 0.0), {0.0, 2.0}, {2.0, 0.0}, {3.0, 2.0}, {0.0, 1.0}}) {
    expect_equal([](auto x, auto y) { return kit::pow(x, y); }, [](auto x, auto y) { return at::pow(x, y); }, a, b);
  }
}

TEST(Dual, TheDerivativesOfAtan2AtZeroAreThoseOfTorch) {
  const Tensor zero = at::zeros({1}, at::kDouble).requires_grad_(), x = at::zeros({1}, at::kDouble).requires_grad_();
  const auto expected = torch::autograd::grad({at::atan2(zero, x)}, {zero, x});
  EXPECT_EQ(atan2(Dual<double>(0, 1), Dual<double>(0.0)).tangent, expected[0].item<double>());
  EXPECT_EQ(atan2(Dual<double>(0.0), Dual<double>(0, 1)).tangent, expected[1].item<double>());
}

// The exponent of a negative base does not vary, although its tangent is given as zeros.
TEST(Dual, PowersOfNegativeNumbersVaryWithTheBase) {
  using A = Dual<Dual<double>>;
  const Dual<double> x(-2, 1), n(3, 0);
  const A y = pow(A(x, Dual<double>(1.0)), A(n, Dual<double>(0, 0)));
  EXPECT_EQ(y.value.value, -8);
  EXPECT_EQ(y.value.tangent, 12);
  EXPECT_EQ(y.tangent.tangent, -12);
}

// The mixed derivative of x^n at n = 0 is 1 / x.
TEST(Dual, PowersHaveMixedDerivativesAtZero) {
  using A = Dual<Dual<double>>;
  const A x(Dual<double>(2, 1), Dual<double>(0.0)), n(Dual<double>(0, 0), Dual<double>(1.0));
  EXPECT_NEAR(pow(x, n).tangent.tangent, 0.5, 1e-15);
}

TEST(Dual, TheSecondDerivativeOfSoftplusAtZero) {
  using A = Dual<Dual<double>>;
  EXPECT_NEAR(kit::softplus(A(Dual<double>(0, 1), Dual<double>(1.0))).tangent.tangent, 0.25, 1e-15);
}

TEST(Dual, AConstantAddsNothing) {
  const Dual<double> product = Dual<double>(2.0) * Dual<double>(INFINITY, 1);
  EXPECT_EQ(product.tangent, 2);
}

}  // namespace
