#pragma once

// Tests of the operators that interpolate between rows of a table (src/interpolation). The expected values are those of
// the CPU's kernels in float64, which other tests compare with torch.
//
// An operator is a struct Op with its attributes and calls, for tensors on any device:
//
//   Tensor forward(table, points) const;
//   std::tuple<Tensor, Tensor> backward(grad, table or none, points, output_mask) const;
//   std::tuple<Tensor, Tensor, Tensor> double_backward(grad, table or none, points, grad_grad_table or none,
//                                                      grad_grad_points, output_mask, order = {}) const;

#include <ATen/Context.h>

#include <array>
#include <optional>
#include <tuple>

#include "cuda_testing.h"

namespace cppcuda::testing {

class Deterministic {
 public:
  explicit Deterministic(bool on) { at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false); }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;
};

inline Tensor random(at::IntArrayRef sizes, double low = -1, double high = 1) {
  return at::rand(sizes, at::kDouble) * (high - low) + low;
}

// The tensor arguments of the operators.
struct Arguments {
  Tensor table, points, grad, grad_grad_table, grad_grad_points;

  template <class F>
  Arguments map(F f) const {
    return {f(table), f(points), f(grad), f(grad_grad_table), f(grad_grad_points)};
  }
};

// Random values for the gradients of a call.
template <class Op>
Arguments with_gradients(const Op& op, const Tensor& table, const Tensor& points) {
  return {table, points, random(op.forward(table, points).sizes()), random(table.sizes()), random(points.sizes())};
}

template <class... T>
std::vector<Tensor> to_vector(const std::tuple<T...>& outputs) {
  return std::apply([](const auto&... t) { return std::vector<Tensor>{t...}; }, outputs);
}

// What the operator's kernels compute, with a name each. Gradients of the table come last, once more with a fixed order
// of additions.
template <class Op>
std::vector<std::pair<std::string, Tensor>> results(const Op& op, const Arguments& a) {
  const std::optional<Tensor> none;
  std::vector<std::pair<std::string, Tensor>> all{{"out", op.forward(a.table, a.points)}};
  const auto add = [&](const char* what, const auto& outputs, std::initializer_list<bool> mask) {
    auto is_requested = mask.begin();
    for (const Tensor& t : to_vector(outputs)) {
      const std::string name = what + std::to_string(is_requested - mask.begin());
      if (*is_requested++) all.emplace_back(name, t);
    }
  };
  const auto backward = [&](std::initializer_list<bool> mask) {
    const bool needs_table = *(mask.begin() + 1);
    add("backward ", op.backward(a.grad, needs_table ? a.table : none, a.points, c10::List<bool>(mask)), mask);
  };
  const auto double_backward = [&](const std::optional<Tensor>& grad_grad_table, std::initializer_list<bool> mask,
                                   const std::vector<int64_t>& order = {}) {
    const bool needs_table = *mask.begin() || *(mask.begin() + 2);
    if (order.empty()) {
      add(grad_grad_table ? "double backward " : "double backward along points ",
          op.double_backward(a.grad, needs_table ? a.table : none, a.points, grad_grad_table, a.grad_grad_points,
                             c10::List<bool>(mask)),
          mask);
      return;
    }
    // Small factors, because derivatives of a fine grid are large for float16.
    const auto u = grad_grad_table ? std::optional(*grad_grad_table / 64) : none;
    add("third derivative ",
        op.double_backward(a.grad / 64, needs_table ? std::optional(a.table / 64) : none, a.points, u,
                           a.grad_grad_points / 64, c10::List<bool>(mask), order),
        mask);
  };
  std::vector<int64_t> order(a.points.size(-1), 0);  // once by the first coordinate, and twice by the last one
  order.front() = 1;
  double_backward(a.grad_grad_table, {true, false, true}, order);
  order.back() = 2;
  double_backward(a.grad_grad_table, {true, false, true}, order);
  order.front() = 0;
  backward({false, true});
  double_backward(a.grad_grad_table, {true, false, true});
  double_backward(none, {true, false, false});
  double_backward(none, {false, false, true});
  for (const bool is_deterministic : {false, true}) {
    const Deterministic scope(is_deterministic);
    backward({true, false});
    double_backward(none, {false, true, false});
    double_backward(none, {false, true, false}, order);
  }
  return all;
}

// Compares all results on the device with those of the CPU in float64.
template <class Op>
void expect_close(const Op& op, const Arguments& a, double tolerance) {
  const auto actual = results(op, a.map([](const Tensor& t) { return on_cuda(t); }));
  const auto expected = results(op, a.map([](const Tensor& t) { return t.to(at::kDouble); }));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto& [name, t] = actual[i];
    EXPECT_TRUE(t.is_contiguous()) << name;
    // Each derivative multiplies by the resolution of a grid, and terms of different signs are added.
    const Tensor magnitudes = at::cat({expected[i].second.flatten().abs(), at::ones(1)});
    const double scale = name.starts_with("third") ? magnitudes.max().item<double>() : 1;
    // The gradients of points are sums over features, those of tables over points.
    EXPECT_TRUE(close(t.cpu() / scale, expected[i].second / scale, i == 0 ? tolerance : 4 * tolerance)) << name;
  }
}

// The same in the dtypes of a call.
template <class Op>
void expect_close(const Op& op, const Arguments& a, const Dtypes& types) {
  expect_close(op,
               {a.table.to(types.narrow), a.points.to(types.wide), a.grad.to(types.narrow),
                a.grad_grad_table.to(types.narrow), a.grad_grad_points.to(types.wide)},
               types.tolerance);
}

template <class Op>
void expect_close(const Op& op, const Arguments& a, const Dtypes& types, Layout layout) {
  SCOPED_TRACE(::testing::PrintToString(layout));
  const auto lay_out = [&](const Tensor& t, at::ScalarType dtype) { return in_layout(t.to(dtype), layout); };
  expect_close(op,
               {lay_out(a.table, types.narrow), lay_out(a.points, types.wide), lay_out(a.grad, types.narrow),
                lay_out(a.grad_grad_table, types.narrow), lay_out(a.grad_grad_points, types.wide)},
               types.tolerance);
}

}  // namespace cppcuda::testing
