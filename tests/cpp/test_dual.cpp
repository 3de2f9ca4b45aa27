// Compares dual numbers (kit/elementwise/dual.h) with torch's own derivatives of the same formulas in float64: first
// order, second order through the tangent, and the value where torch has another convention.
#include "cppcuda/kit/elementwise/dual.h"
#include "testing.h"

#include <torch/autograd.h>

namespace {

using cppcuda::kit::Dual;
using cppcuda::testing::close;
namespace kit = cppcuda::kit;

struct Formula {
  const char* name;
  Dual (*dual)(const Dual&);
  at::Tensor (*torch)(const at::Tensor&);
};

const Formula formulas[] = {
    {"sums", [](const Dual& x) { return Dual(2) - x + x * x - Dual(3) + -x; },
     [](const at::Tensor& x) { return 2 - x + x * x - 3 + -x; }},
    {"quotient", [](const Dual& x) { return (Dual(2) * x - Dual(1)) / (x * x + Dual(3)); },
     [](const at::Tensor& x) { return (2 * x - 1) / (x * x + 3); }},
    {"number by tensor", [](const Dual& x) { return Dual(5) / (Dual(4) + x) / Dual(2); },
     [](const at::Tensor& x) { return 5 / (4 + x) / 2; }},
    {"exp and tanh", [](const Dual& x) { return exp(-x) * tanh(x) + exp(Dual(0.5)) * tanh(Dual(0.5)); },
     [](const at::Tensor& x) { return at::exp(-x) * at::tanh(x) + std::exp(0.5) * std::tanh(0.5); }},
    {"abs", [](const Dual& x) { return abs(x) * exp(-abs(x)); },
     [](const at::Tensor& x) { return at::abs(x) * at::exp(-at::abs(x)); }},
    {"select of tensors", [](const Dual& x) { return select(x < Dual(0.25), x * x, exp(x)); },
     [](const at::Tensor& x) { return at::where(x < 0.25, x * x, at::exp(x)); }},
    {"select with a number", [](const Dual& x) { return select(x > Dual(0.25), x * x * x, Dual(7)); },
     [](const at::Tensor& x) { return at::where(x > 0.25, x * x * x, 7.0); }},
    {"logistic", [](const Dual& x) { return x * kit::logistic(x * Dual(1.5)); },
     [](const at::Tensor& x) { return x * at::sigmoid(x * 1.5); }},
    {"slope of the logistic", [](const Dual& x) { return kit::Logistic<Dual>(x * x).slope(); },
     [](const at::Tensor& x) { return at::sigmoid(x * x) * (1 - at::sigmoid(x * x)); }},
};

at::Tensor gradient(const at::Tensor& y, const at::Tensor& x, const at::Tensor& direction) {
  return torch::autograd::grad({y}, {x}, {direction}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

TEST(Dual, HasTheDerivativesOfTorch) {
  for (const Formula& f : formulas) {
    SCOPED_TRACE(f.name);
    const at::Tensor x = at::linspace(-2, 2, 12, at::kDouble).requires_grad_();
    const at::Tensor direction = at::linspace(0.5, 3, 12, at::kDouble);
    const Dual y = f.dual(Dual(Dual::Value(x), Dual::Value(direction)));
    const at::Tensor expected = f.torch(x);
    EXPECT_TRUE(close(std::get<at::Tensor>(y.value()), expected, 1e-14));
    const at::Tensor expected_tangent = gradient(expected, x, direction);
    ASSERT_TRUE(y.tangent());
    const auto tangent = std::get<at::Tensor>(*y.tangent());
    EXPECT_TRUE(close(tangent, expected_tangent, 1e-13));
    const at::Tensor ones = at::ones_like(x);
    EXPECT_TRUE(close(gradient(tangent, x, ones), gradient(expected_tangent, x, ones), 1e-12));
  }
}

TEST(Dual, TakesANumberForATangent) {
  const at::Tensor x = at::linspace(-2, 2, 12, at::kDouble);
  for (const Formula& f : formulas) {
    SCOPED_TRACE(f.name);
    const auto tangent = [&](Dual::Value direction) {
      const Dual y = f.dual(Dual(Dual::Value(x), std::move(direction)));
      const Dual::Value& t = *y.tangent();
      const double* number = std::get_if<double>(&t);
      return number ? at::full_like(x, *number) : std::get<at::Tensor>(t);
    };
    EXPECT_TRUE(close(tangent(1.0), tangent(at::ones_like(x)), 0));
  }
}

TEST(Dual, ConstantsHaveNoTangent) {
  const at::Tensor x = at::ones({3});
  for (const Formula& f : formulas) EXPECT_FALSE(f.dual(Dual(Dual::Value(x))).tangent()) << f.name;
}

TEST(Dual, TheDerivativeOfAbsAtZeroIsOne) {
  const Dual y = abs(Dual(Dual::Value(at::zeros({2}, at::kDouble)), Dual::Value(1.0)));
  EXPECT_TRUE(close(std::get<at::Tensor>(*y.tangent()), at::ones({2}), 0));
}

TEST(Dual, KeepsTheDtypeBesideNumbers) {
  const at::Tensor x = at::linspace(-1, 1, 5, at::kFloat);
  for (const Formula& f : formulas) {
    const Dual y = f.dual(Dual(Dual::Value(x), Dual::Value(x)));
    EXPECT_EQ(std::get<at::Tensor>(y.value()).scalar_type(), at::kFloat) << f.name;
    EXPECT_EQ(std::get<at::Tensor>(*y.tangent()).scalar_type(), at::kFloat) << f.name;
  }
}

}  // namespace
