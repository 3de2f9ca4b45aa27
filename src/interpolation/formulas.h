#pragma once

// The derivatives of interpolation. With the weights w_c(p) of a point's corners, their slopes d_k w_c(p) and the
// corners' features x_c (dot products are over f):
//
//   out         = sum_c w_c x_c
//   grad_x_c    = w_c grad
//   grad_points = sum_c d_k w_c (x_c . grad)
//
// All of these are linear in x and grad, so every derivative is the same expression with derivatives of w_c in place of
// w_c. A derivative in a direction v is w_c(v) = sum_k v_k d_k w_c.
//
// Operators compute the first and second derivatives in one pass each. Those of the second ones call DoubleBackward
// with weights that are differentiated by a coordinate, its attribute `order`, so there are kernels for all orders. An
// operator's formulas are templates over a struct in its op.cpp:
//
//   struct Table {
//     using Forward = ..., Backward = ..., DoubleBackward = ...;
//     // The features in the declarations, their gradient, and the gradient of that.
//     static constexpr const char *features = "table", *grad_features = "grad(table)", *second = "grad_grad_table";
//     struct Attributes {};  // attributes of Forward's formula (kit/formula.h)
//
//     // The arguments besides features and points. They are those of any of the operators.
//     template <class Saved> explicit Table(const Saved& saved);
//
//     // Calls of the operators.
//     Tensor forward(features, points) const;
//     std::tuple<Tensor, Tensor> backward(grad, features or none, points, output_mask) const;
//     std::tuple<Tensor, Tensor, Tensor> double_backward(grad, features or none, points, grad_grad_features or none,
//                                                        grad_grad_points, output_mask, order) const;
//
//     c10::SymInt columns() const;  // only if these are not those of the features: the columns of the output
//   };

#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "cppcuda/kit/autograd.h"

namespace cppcuda::interpolation {

// How often weights are differentiated by each coordinate; empty if they are not.
using Orders = std::vector<int64_t>;

inline bool is_given(const Orders& order) {
  return std::any_of(order.begin(), order.end(), [](int64_t times) { return times > 0; });
}

// The number of coordinates. Only this dim is made an integer; `size` would make all of them constants of a graph.
inline int64_t axes_of(const Tensor& points) { return points.sym_size(-1).guard_int(__FILE__, __LINE__); }

// One derivative more by coordinate d.
inline Orders raised(Orders order, const Tensor& points, int64_t d) {
  order.resize(static_cast<size_t>(axes_of(points)));
  ++order[static_cast<size_t>(d)];
  return order;
}

// The direction of coordinate d, for each point.
inline Tensor direction(const Tensor& points, int64_t d) {
  const Tensor p = points.select(-1, 0);
  std::vector<Tensor> coordinates(static_cast<size_t>(axes_of(points)), at::zeros_like(p));
  coordinates[static_cast<size_t>(d)] = at::ones_like(p);
  return at::stack(coordinates, -1);
}

// grad times coordinate d of a direction, for each point. The product is rounded to grad's dtype.
inline Tensor scaled(const Tensor& grad, const Tensor& direction, int64_t d) {
  return (kit::in_opmath(grad) * kit::in_opmath(direction.select(-1, d)).unsqueeze(-1)).to(grad.scalar_type());
}

// DoubleBackward takes grad also where it does not read it. There it need not be given here.
template <class Table>
kit::Outputs<typename Table::DoubleBackward> call_double_backward(
    const Table& table, const Tensor& grad, const Tensor& x, const Tensor& points, const Tensor& grad_grad_x,
    const Tensor& grad_grad_points, const std::array<bool, 3>& need, const Orders& order = {}) {
  Tensor g = grad;
  if (!g.defined()) {
    c10::SymDimVector sizes(points.sym_sizes());
    if constexpr (requires { table.columns(); }) {
      sizes.back() = table.columns();
    } else {
      sizes.back() = x.sym_size(-1);
    }
    // Contiguous features, so that the kernel takes the loop that it takes with a grad that it reads.
    g = at::zeros_symint({sizes.back()}, x.options()).expand_symint(sizes);
  }
  return kit::to_array(table.double_backward(g, kit::to_optional(x), points, kit::to_optional(grad_grad_x),
                                             grad_grad_points, kit::to_list(need), order));
}

// Every gradient reads the indices.
template <class Op>
consteval auto reads(std::initializer_list<kit::GradientOf<Op>> gradients) {
  auto result = kit::reads<Op>(gradients);
  const auto& arguments = Op::declaration.arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_index) continue;
    for (auto& gradient : result) gradient.inputs |= 1U << Op::declaration.tensor_index(i);
  }
  return result;
}

template <class Table>
struct ForwardFormula : Table::Attributes {
  using Op = typename Table::Forward;
  static constexpr auto reads = interpolation::reads<Op>({
      {Table::features, {"points"}},
      {"points", {Table::features, "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const bool of_features = need[Table::features], of_points = need["points"];
    const OptionalTensor x = of_points ? OptionalTensor(saved[Table::features]) : std::nullopt;
    kit::Inputs<Op> result;
    std::tie(result[Table::features], result["points"]) =
        Table(saved).backward(grads["output"], x, saved["points"], c10::List<bool>({of_features, of_points}));
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    const Table table(saved);
    const Tensor &x = saved[Table::features], &p = saved["points"];
    const Tensor &tx = tangents[Table::features], &tp = tangents["points"];
    Tensor out;
    if (tx.defined()) kit::accumulate(out, table.forward(tx, p));
    if (tp.defined()) {
      kit::accumulate(out, call_double_backward(table, {}, x, p, {}, tp, {true, false, false})["grad(grad)"]);
    }
    return out;
  }
};

template <class Table>
struct BackwardFormula {
  using Op = typename Table::Backward;
  static constexpr auto reads = interpolation::reads<Op>({
      {"grad", {Table::features, "points"}},
      {Table::features, {"grad", "points"}},
      {"points", {"grad", Table::features, "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const Table table(saved);
    const Tensor &g = saved["grad"], &x = saved[Table::features], &p = saved["points"];
    const Tensor &grad_of_dx = grads[Table::grad_features], &grad_of_dp = grads["grad(points)"];
    kit::Inputs<Op> result;
    if (grad_of_dp.defined()) {
      const auto all = call_double_backward(table, g, x, p, grad_of_dx, grad_of_dp,
                                            {need["grad"], need[Table::features], need["points"]});
      result["grad"] = all["grad(grad)"];
      result[Table::features] = all[Table::grad_features];
      result["points"] = all["grad(points)"];
      return result;
    }
    if (!grad_of_dx.defined()) return result;
    if (need["grad"]) result["grad"] = table.forward(grad_of_dx, p);
    if (need["points"]) result["points"] = grad_points(table, g, grad_of_dx, p);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const Table table(saved);
    const Tensor &g = saved["grad"], &x = saved[Table::features], &p = saved["points"];
    const Tensor &tg = tangents["grad"], &tx = tangents[Table::features], &tp = tangents["points"];
    const bool of_features = saved.is_requested(Table::grad_features), of_points = saved.is_requested("grad(points)");
    kit::Outputs<Op> result;
    Tensor &dx = result[Table::grad_features], &dp = result["grad(points)"];
    if (tg.defined()) {
      result = kit::to_array(table.backward(tg, kit::to_optional(x), p, c10::List<bool>({of_features, of_points})));
    }
    if (tx.defined() && of_points) kit::accumulate(dp, grad_points(table, g, tx, p));
    if (tp.defined()) {
      const auto second = call_double_backward(table, g, x, p, {}, tp, {false, of_features, of_points});
      if (of_features) kit::accumulate(dx, second[Table::grad_features]);
      if (of_points) kit::accumulate(dp, second["grad(points)"]);
    }
    return result;
  }

 private:
  static Tensor grad_points(const Table& table, const Tensor& grad, const Tensor& x, const Tensor& points) {
    return std::get<1>(table.backward(grad, x, points, c10::List<bool>({false, true})));
  }
};

// The operators with weights that are differentiated by `order`. Undefined features are zeros.
template <class Table>
struct Differentiated {
  // Where DoubleBackward's outputs are added; null for those that are not requested.
  struct Targets {
    Tensor *grad, *features, *points;
  };

  const Table& table;
  const Tensor& points;
  Orders order;

  Tensor forward(const Tensor& x) const { return is_given(order) ? lowered({}, x, 0) : table.forward(x, points); }
  Tensor grad_features(const Tensor& grad) const {
    return is_given(order) ? lowered(grad, {}, 1) : std::get<0>(table.backward(grad, std::nullopt, points, mask(0)));
  }
  Tensor grad_points(const Tensor& grad, const Tensor& x) const {
    return is_given(order) ? lowered(grad, x, 2) : std::get<1>(table.backward(grad, x, points, mask(1)));
  }

  // Calls DoubleBackward with features x, grad_grad_features u and grad_grad_points v.
  void add(const Tensor& grad, const Tensor& x, const Tensor& u, const Tensor& v, const Targets& to) const {
    const bool reads = x.defined();
    const std::array<bool, 3> need{to.grad && reads, to.features != nullptr, to.points && reads};
    if (!need[0] && !need[1] && !need[2]) return;
    const auto all = call_double_backward(table, grad, need[0] || need[2] ? x : Tensor(), points,
                                          need[0] || need[2] ? u : Tensor(), v, need, order);
    if (need[0]) kit::accumulate(*to.grad, all[0]);
    if (need[1]) kit::accumulate(*to.features, all[1]);
    if (need[2]) kit::accumulate(*to.points, all[2]);
  }

  // The same without u, with the derivatives of the weights in a direction.
  void add_along(const Tensor& along, const Tensor& grad, const Tensor& x, const Tensor& v, const Targets& to) const {
    if (!to.grad && !to.features && !to.points) return;
    for (int64_t d = 0, axes = axes_of(points); d < axes; ++d) {
      Tensor grad_grad;
      const Tensor g = to.features || to.points ? scaled(grad, along, d) : Tensor();
      Differentiated{table, points, raised(order, points, d)}.add(
          g, x, {}, v, {to.grad ? &grad_grad : nullptr, to.features, to.points});
      if (grad_grad.defined()) kit::accumulate(*to.grad, scaled(grad_grad, along, d));
    }
  }

 private:
  static c10::List<bool> mask(size_t output) { return c10::List<bool>({output == 0, output == 1}); }

  // An output of DoubleBackward in the direction of a coordinate by which the weights are differentiated once less.
  Tensor lowered(const Tensor& grad, const Tensor& x, size_t output) const {
    Orders lower = order;
    const auto at = std::find_if(lower.begin(), lower.end(), [](int64_t times) { return times > 0; });
    --*at;
    std::array<bool, 3> need{};
    need[output] = true;
    return call_double_backward(table, grad, x, points, {}, direction(points, at - lower.begin()), need, lower)[output];
  }
};

// With u = grad_grad_x and v = grad_grad_points:
//
//   grad_grad   = sum_c w_c u_c + w_c(v) x_c
//   grad_x_c    = w_c(v) grad
//   grad_points = sum_c d_k w_c (u_c . grad) + d_k w_c(v) (x_c . grad)
template <class Table>
struct DoubleBackwardFormula {
  using Op = typename Table::DoubleBackward;
  static constexpr auto reads = interpolation::reads<Op>({
      {"grad", {Table::features, "points", Table::second, "grad_grad_points"}},
      {Table::features, {"grad", "points", "grad_grad_points"}},
      {"points", {"grad", Table::features, "points", Table::second, "grad_grad_points"}},
      {Table::second, {"grad", "points"}},
      {"grad_grad_points", {"grad", Table::features, "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<DoubleBackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const Table table(saved);
    const Differentiated<Table> call{table, saved["points"], order(saved)};
    const Tensor &g = saved["grad"], &x = saved[Table::features], &u = saved[Table::second],
                 &v = saved["grad_grad_points"];
    const Tensor &of_g = grads["grad(grad)"], &of_x = grads[Table::grad_features], &of_p = grads["grad(points)"];
    kit::Inputs<Op> result;
    const auto target = [&](kit::InputKey<Op> name) { return need[name] ? &result[name] : nullptr; };
    Tensor *const dg = target("grad"), *const dx = target(Table::features), *const dp = target("points"),
                  *const du = target(Table::second), *const dv = target("grad_grad_points");
    if (of_g.defined()) {
      call.add(of_g, x, u, v, {nullptr, dx, dp});
      if (du) kit::accumulate(*du, call.grad_features(of_g));
      if (dv) kit::accumulate(*dv, call.grad_points(of_g, x));
    }
    if (of_x.defined()) {
      call.add(g, of_x, {}, v, {dg, nullptr, dp});
      if (dv) kit::accumulate(*dv, call.grad_points(g, of_x));
    }
    if (of_p.defined()) {
      call.add(g, u, {}, of_p, {dg, du, dp});
      call.add(g, x, {}, of_p, {nullptr, nullptr, dv});
      call.add_along(v, g, x, of_p, {dg, dx, dp});
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<DoubleBackwardFormula>& saved) {
    const Table table(saved);
    const Differentiated<Table> call{table, saved["points"], order(saved)};
    const Tensor &g = saved["grad"], &x = saved[Table::features], &u = saved[Table::second],
                 &v = saved["grad_grad_points"];
    const Tensor &tg = tangents["grad"], &tx = tangents[Table::features], &tp = tangents["points"],
                 &tu = tangents[Table::second], &tv = tangents["grad_grad_points"];
    kit::Outputs<Op> result;
    const auto target = [&](kit::OutputKey<Op> name) { return saved.is_requested(name) ? &result[name] : nullptr; };
    Tensor *const grad = target("grad(grad)"), *const features = target(Table::grad_features),
                  *const points = target("grad(points)");
    if (tg.defined()) call.add(tg, x, u, v, {nullptr, features, points});
    if (tx.defined()) call.add(g, tx, {}, v, {grad, nullptr, points});
    if (tu.defined() && grad) kit::accumulate(*grad, call.forward(tu));
    if (tu.defined() && points) kit::accumulate(*points, call.grad_points(g, tu));
    if (tv.defined()) call.add(g, x, {}, tv, {grad, features, points});
    if (tp.defined()) {
      call.add(g, u, {}, tp, {grad, nullptr, points});
      call.add_along(v, g, x, tp, {grad, features, points});
    }
    return result;
  }

 private:
  // trilinear's operator has no `order`.
  static Orders order(const kit::Saved<DoubleBackwardFormula>& saved) {
    if constexpr (Op::declaration.find_argument("order") < Op::declaration.arguments.size()) {
      return saved.template attribute<"order">();
    }
    return {};
  }
};

}  // namespace cppcuda::interpolation
