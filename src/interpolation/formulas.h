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
// with weights that are differentiated by a coordinate, its attribute `derivative`, so there are kernels for all
// orders. An operator's formulas are templates over a struct in its op.cpp, its family:
//
//   struct Volume {
//     using Forward = ..., Backward = ..., DoubleBackward = ...;
//     // The features in the declarations, their gradient, and the gradient of that.
//     static constexpr const char *features = "input", *grad_features = "grad(input)", *second = "grad_grad_input";
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
#include "cppcuda/kit/call.h"
#include "types.h"

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

// Calls of a family's operators. Arguments besides features, points and their gradients are those of the call that a
// formula differentiates.
template <class Family>
class Operators {
 public:
  using Forward = typename Family::Forward;
  using Backward = typename Family::Backward;
  using DoubleBackward = typename Family::DoubleBackward;

  template <class Formula>
  explicit Operators(const kit::Saved<Formula>& saved) : all_(saved) {}

  Tensor forward(const Tensor& x, const Tensor& points) const {
    kit::Call<Forward> call(all_);
    call.tensors[Family::features] = x;
    call.tensors["points"] = points;
    return call.run()["output"];
  }

  kit::Outputs<Backward> backward(const Tensor& grad, const Tensor& x, const Tensor& points, bool of_features,
                                  bool of_points) const {
    kit::Call<Backward> call(all_);
    call.tensors["grad"] = grad;
    call.tensors[Family::features] = x;
    call.tensors["points"] = points;
    call.template attribute<"output_mask">() = {of_features, of_points};
    return call.run();
  }

  // The operator takes grad also where it does not read it. There it need not be given here.
  kit::Outputs<DoubleBackward> double_backward(const Tensor& grad, const Tensor& x, const Tensor& points,
                                               const Tensor& grad_grad_x, const Tensor& grad_grad_points,
                                               const std::array<bool, 3>& need, const Orders& order = {}) const {
    kit::Call<DoubleBackward> call(all_);
    call.tensors["grad"] = grad.defined() ? grad : zero_grad(x, points);
    call.tensors[Family::features] = x;
    call.tensors["points"] = points;
    call.tensors[Family::second] = grad_grad_x;
    call.tensors["grad_grad_points"] = grad_grad_points;
    call.template attribute<"output_mask">() = {need[0], need[1], need[2]};
    if constexpr (requires { Family::double_backward_of_order(call, order); }) {
      return is_given(order) ? Family::double_backward_of_order(call, order) : call.run();
    } else {
      call.template attribute<"derivative">() = order;
      return call.run();
    }
  }

 private:
  // Its features are contiguous, so that the kernel takes the loop that it takes with a grad that it reads.
  Tensor zero_grad(const Tensor& x, const Tensor& points) const {
    c10::SymDimVector sizes(points.sym_sizes());
    if constexpr (requires { Family::columns(all_); }) {
      sizes.back() = Family::columns(all_);
    } else {
      sizes.back() = x.sym_size(-1);
    }
    return at::zeros_symint({sizes.back()}, x.options()).expand_symint(sizes);
  }

  kit::Call<DoubleBackward> all_;
};

template <class Family>
struct ForwardFormula : kit::GradientsBy<typename Family::Forward, typename Family::Backward> {
  using Op = typename Family::Forward;

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    const Operators<Family> table(saved);
    const Tensor &x = saved[Family::features], &p = saved["points"];
    const Tensor &tx = tangents[Family::features], &tp = tangents["points"];
    Tensor out;
    if (tx.defined()) kit::accumulate(out, table.forward(tx, p));
    if (tp.defined()) {
      kit::accumulate(out, table.double_backward({}, x, p, {}, tp, {true, false, false})["grad(grad)"]);
    }
    return out;
  }
};

template <class Family>
struct BackwardFormula {
  using Op = typename Family::Backward;
  static constexpr auto reads = kit::reads_of<Op, typename Family::DoubleBackward>();

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const Operators<Family> table(saved);
    const Tensor &g = saved["grad"], &x = saved[Family::features], &p = saved["points"];
    const Tensor &grad_of_dx = grads[Family::grad_features], &grad_of_dp = grads["grad(points)"];
    kit::Inputs<Op> result;
    if (grad_of_dp.defined()) {
      const auto all = table.double_backward(g, x, p, grad_of_dx, grad_of_dp,
                                             {need["grad"], need[Family::features], need["points"]});
      result["grad"] = all["grad(grad)"];
      result[Family::features] = all[Family::grad_features];
      result["points"] = all["grad(points)"];
      return result;
    }
    if (!grad_of_dx.defined()) return result;
    if (need["grad"]) result["grad"] = table.forward(grad_of_dx, p);
    if (need["points"]) result["points"] = grad_points(table, g, grad_of_dx, p);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const Operators<Family> table(saved);
    const Tensor &g = saved["grad"], &x = saved[Family::features], &p = saved["points"];
    const Tensor &tg = tangents["grad"], &tx = tangents[Family::features], &tp = tangents["points"];
    const bool of_features = saved.is_requested(Family::grad_features), of_points = saved.is_requested("grad(points)");
    kit::Outputs<Op> result;
    Tensor &dx = result[Family::grad_features], &dp = result["grad(points)"];
    if (tg.defined()) {
      result = table.backward(tg, x, p, of_features, of_points);
    }
    if (tx.defined() && of_points) kit::accumulate(dp, grad_points(table, g, tx, p));
    if (tp.defined()) {
      const auto second = table.double_backward(g, x, p, {}, tp, {false, of_features, of_points});
      if (of_features) kit::accumulate(dx, second[Family::grad_features]);
      if (of_points) kit::accumulate(dp, second["grad(points)"]);
    }
    return result;
  }

 private:
  static Tensor grad_points(const Operators<Family>& table, const Tensor& grad, const Tensor& x, const Tensor& points) {
    return table.backward(grad, x, points, false, true)["grad(points)"];
  }
};

// The operators with weights that are differentiated by `order`. Undefined features are zeros.
template <class Family>
struct Differentiated {
  // Where DoubleBackward's outputs are added; null for those that are not requested.
  struct Targets {
    Tensor *grad, *features, *points;
  };

  const Operators<Family>& table;
  const Tensor& points;
  Orders order;

  Tensor forward(const Tensor& x) const { return is_given(order) ? lowered({}, x, 0) : table.forward(x, points); }
  Tensor grad_features(const Tensor& grad) const {
    return is_given(order) ? lowered(grad, {}, 1) : table.backward(grad, {}, points, true, false)[0];
  }
  Tensor grad_points(const Tensor& grad, const Tensor& x) const {
    return is_given(order) ? lowered(grad, x, 2) : table.backward(grad, x, points, false, true)[1];
  }

  // Calls DoubleBackward with features x, grad_grad_features u and grad_grad_points v.
  void add(const Tensor& grad, const Tensor& x, const Tensor& u, const Tensor& v, const Targets& to) const {
    const bool reads = x.defined();
    const std::array<bool, 3> need{to.grad && reads, to.features != nullptr, to.points && reads};
    if (!need[0] && !need[1] && !need[2]) return;
    const auto all = table.double_backward(grad, need[0] || need[2] ? x : Tensor(), points,
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
  // An output of DoubleBackward in the direction of a coordinate by which the weights are differentiated once less.
  Tensor lowered(const Tensor& grad, const Tensor& x, size_t output) const {
    Orders lower = order;
    const auto at = std::find_if(lower.begin(), lower.end(), [](int64_t times) { return times > 0; });
    --*at;
    std::array<bool, 3> need{};
    need[output] = true;
    return table.double_backward(grad, x, points, {}, direction(points, at - lower.begin()), need, lower)[output];
  }
};

// With u = grad_grad_x and v = grad_grad_points:
//
//   grad_grad   = sum_c w_c u_c + w_c(v) x_c
//   grad_x_c    = w_c(v) grad
//   grad_points = sum_c d_k w_c (u_c . grad) + d_k w_c(v) (x_c . grad)
template <class Family>
struct DoubleBackwardFormula {
  using Op = typename Family::DoubleBackward;
  static constexpr auto reads = kit::reads<Op>({
      {"grad", {Family::features, "points", Family::second, "grad_grad_points"}},
      {Family::features, {"grad", "points", "grad_grad_points"}},
      {"points", {"grad", Family::features, "points", Family::second, "grad_grad_points"}},
      {Family::second, {"grad", "points"}},
      {"grad_grad_points", {"grad", Family::features, "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<DoubleBackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const Operators<Family> table(saved);
    const Differentiated<Family> call{table, saved["points"], order(saved)};
    const Tensor &g = saved["grad"], &x = saved[Family::features], &u = saved[Family::second],
                 &v = saved["grad_grad_points"];
    const Tensor &of_g = grads["grad(grad)"], &of_x = grads[Family::grad_features], &of_p = grads["grad(points)"];
    kit::Inputs<Op> result;
    const auto target = [&](kit::InputKey<Op> name) { return need[name] ? &result[name] : nullptr; };
    Tensor *const dg = target("grad"), *const dx = target(Family::features), *const dp = target("points"),
                  *const du = target(Family::second), *const dv = target("grad_grad_points");
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
    const Operators<Family> table(saved);
    const Differentiated<Family> call{table, saved["points"], order(saved)};
    const Tensor &g = saved["grad"], &x = saved[Family::features], &u = saved[Family::second],
                 &v = saved["grad_grad_points"];
    const Tensor &tg = tangents["grad"], &tx = tangents[Family::features], &tp = tangents["points"],
                 &tu = tangents[Family::second], &tv = tangents["grad_grad_points"];
    kit::Outputs<Op> result;
    const auto target = [&](kit::OutputKey<Op> name) { return saved.is_requested(name) ? &result[name] : nullptr; };
    Tensor *const grad = target("grad(grad)"), *const features = target(Family::grad_features),
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
    if constexpr (Op::declaration.find_argument("derivative") < Op::declaration.arguments.size()) {
      return saved.template attribute<"derivative">();
    }
    return {};
  }
};

}  // namespace cppcuda::interpolation
