#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "lltm_testing.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using torch::autograd::grad;

// input, weight, bias, h0, c0
using Arguments = std::vector<Tensor>;

// group < 0: no groups.
Arguments arguments(int64_t group, int64_t steps, int64_t rows, int64_t input, int64_t size,
                    at::ScalarType dtype = at::kDouble) {
  auto make = [&](std::vector<int64_t> sizes) {
    if (group >= 0) sizes.insert(sizes.begin(), group);
    return (at::randn(sizes, at::kDouble) * 0.5).to(dtype);
  };
  // Products stay small, however many terms they have.
  const Tensor weight = make({3 * size, size + input}) / std::sqrt(static_cast<double>(size + input + 1));
  return {make({steps, rows, input}), weight, make({3 * size}), make({rows, size}), make({rows, size})};
}

std::vector<Tensor> reference(const Arguments& a) {
  const auto all = cppcuda::testing::reference_sequence(a);
  return {all[0], all[1], all[2]};
}

std::vector<Tensor> ours(const Arguments& a) {
  const auto [output, hn, cn] = cppcuda::lltm(a[0], a[1], a[2], a[3], a[4]);
  return {output, hn, cn};
}

struct Shape {
  const char* name;
  int64_t group, steps, rows, input, size;
};

void PrintTo(const Shape& s, std::ostream* os) { *os << s.name; }

class LltmShapes : public ::testing::TestWithParam<Shape> {};

TEST_P(LltmShapes, ValuesAndGradientsOfBothOrdersEqualPlainTorch) {
  at::manual_seed(0);
  const auto [name, group, steps, rows, input, size] = GetParam();
  const Arguments plain = arguments(group, steps, rows, input, size);
  std::vector<std::vector<Tensor>> results;
  for (const auto f : {ours, reference}) {
    Arguments inputs;
    for (const Tensor& t : plain) inputs.push_back(t.clone().requires_grad_());
    std::vector<Tensor> found = f(inputs);
    Tensor loss = at::zeros({}, at::kDouble);
    for (const Tensor& t : found) loss = loss + (t.cos() * (t + 1)).sum();
    const auto first = grad({loss}, inputs, {}, /*retain_graph=*/true, /*create_graph=*/true);
    Tensor sum = at::zeros({}, at::kDouble);
    for (const Tensor& t : first) sum = sum + (t.sin() * (t + 1)).sum();
    const auto second = grad({sum}, inputs);
    found.insert(found.end(), first.begin(), first.end());
    found.insert(found.end(), second.begin(), second.end());
    results.push_back(found);
  }
  EXPECT_TRUE(results[0][0].is_contiguous());
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(close(results[0][i], results[1][i], 1e-9)) << i;
}

INSTANTIATE_TEST_SUITE_P(Lltm, LltmShapes,
                         ::testing::Values(Shape{"One", -1, 1, 1, 1, 1}, Shape{"Odd", -1, 4, 5, 3, 7},
                                           Shape{"ManyRows", -1, 3, 37, 4, 16}, Shape{"WideState", -1, 2, 3, 8, 530},
                                           Shape{"Groups", 3, 2, 4, 2, 5}, Shape{"NoInput", -1, 3, 4, 0, 5},
                                           Shape{"NoRows", -1, 2, 0, 2, 5}, Shape{"NoState", -1, 2, 4, 2, 0}),
                         [](const auto& info) { return info.param.name; });

TEST(Lltm, SixteenBitsWithAWideState) {
  at::manual_seed(1);
  Arguments a = arguments(-1, 5, 9, 6, 8, at::kBFloat16);
  a[4] = a[4].to(at::kFloat);
  Arguments exact;
  for (const Tensor& t : a) exact.push_back(t.to(at::kDouble));
  const auto actual = ours(a), expected = reference(exact);
  EXPECT_EQ(actual[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(actual[2].scalar_type(), at::kFloat);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(close(actual[i], expected[i], 5e-2));
}

TEST(Lltm, NoStepsReturnTheFirstState) {
  const Arguments a = arguments(-1, 0, 3, 2, 4);
  const auto [output, hn, cn] = cppcuda::lltm(a[0], a[1], a[2], a[3], a[4]);
  EXPECT_EQ(output.sizes(), (at::IntArrayRef{0, 3, 4}));
  EXPECT_TRUE(at::equal(hn, a[3]) && at::equal(cn, a[4]));
  EXPECT_FALSE(hn.is_alias_of(a[3]) || cn.is_alias_of(a[4]));
}

TEST(Lltm, Errors) {
  const Arguments good = arguments(-1, 2, 5, 3, 4);
  const char* names[] = {"input", "weight", "bias", "h0", "c0"};
  for (size_t i = 0; i < good.size(); ++i) {
    Arguments a = good;
    a[i] = Tensor();
    const std::string message = error_of([&] { ours(a); });
    EXPECT_EQ(message.find(std::string("lltm: ") + names[i]), 0u) << message;
  }
  Arguments a = good;
  a[3] = at::zeros({1, 5, 4}, at::kDouble);
  EXPECT_EQ(error_of([&] { ours(a); }), "lltm: h0 must be [B, S], got [1, 5, 4]");
}

}  // namespace
