// With the weights w_c(p) of the corners, their slopes d_k w_c(p) and the corner features x_c (dot products are over
// f):
//
//   out         = sum_c w_c x_c
//   grad_feats  = w_c grad
//   grad_points = sum_c d_k w_c (x_c . grad)
//
// All of these are linear in feats and grad, and w_c is linear in each coordinate, so every derivative below is the
// same expression with a slope in place of a factor. A derivative in a direction v is w_c(v) = sum_k v_k d_k w_c.

#include "cppcuda/kit/autograd.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "ops/trilinear/op.h"

namespace cppcuda::ops::trilinear {
namespace {

// One factor per axis, [..., 2] each.
using Factors = std::array<Tensor, 3>;

Factors factors(const Tensor& points) {
  Factors result;
  for (int64_t d = 0; d < 3; ++d) {
    const Tensor p = kit::in_opmath(points.select(-1, d));
    result[d] = at::stack({(1 - p) / 2, (1 + p) / 2}, -1);
  }
  return result;
}

// The derivative of a factor with respect to its coordinate, [..., 2], the same on every axis.
Tensor slope(const Tensor& points) {
  const Tensor half = at::full_like(kit::in_opmath(points.select(-1, 0)), 0.5);
  return at::stack({-half, half}, -1);
}

// [..., 8]
Tensor outer_product(const Factors& f) {
  return (f[0].unsqueeze(-1).unsqueeze(-1) * f[1].unsqueeze(-2).unsqueeze(-1) * f[2].unsqueeze(-2).unsqueeze(-2))
      .flatten(-3);
}

// The weights, differentiated along some axes. Second derivatives along one axis are 0.
struct Weights {
  Factors factors;
  Tensor slope;
  std::array<bool, 3> differentiated{};

  explicit Weights(const Tensor& points) : factors(trilinear::factors(points)), slope(trilinear::slope(points)) {}

  Weights along_axis(int64_t d) const {
    Weights result = *this;
    result.factors[d] = slope;
    result.differentiated[d] = true;
    return result;
  }
};

// The derivative of the weights in some directions [..., 3], one after another: [..., 8].
Tensor weights(const Weights& w, at::TensorList directions) {
  if (directions.empty()) return outer_product(w.factors);
  Tensor sum;
  for (int64_t d = 0; d < 3; ++d) {
    if (w.differentiated[d]) continue;
    const Tensor along = kit::in_opmath(directions[0].select(-1, d)).unsqueeze(-1);
    kit::accumulate(sum, along * weights(w.along_axis(d), directions.slice(1)));
  }
  return sum.defined() ? sum : at::zeros_like(outer_product(w.factors));
}

Tensor weights(const Tensor& points, at::TensorList directions) { return weights(Weights(points), directions); }

// The slopes of these weights: [..., 8, 3].
Tensor slopes(const Tensor& points, at::TensorList directions) {
  const Weights w(points);
  std::array<Tensor, 3> by_axis;
  for (int64_t d = 0; d < 3; ++d) by_axis[d] = weights(w.along_axis(d), directions);
  return at::stack(by_axis, -1);
}

// These use products and sums instead of matmul, which would run in 16 bits if functorch re-enables autocast.

// sum_c weights_c feats_c: [..., 8], [..., 8, F] -> [..., F]
Tensor combine(const Tensor& weights, const Tensor& feats) {
  return (weights.unsqueeze(-1) * kit::in_opmath(feats)).sum(-2).to(feats.scalar_type());
}

// weights_c grad: [..., 8], [..., F] -> [..., 8, F]
Tensor spread(const Tensor& weights, const Tensor& grad) {
  return (weights.unsqueeze(-1) * kit::in_opmath(grad).unsqueeze(-2)).to(grad.scalar_type());
}

// sum_c slopes_c (feats_c . grad): [..., 8, 3] -> [..., 3]
Tensor project(const Tensor& slopes, const Tensor& feats, const Tensor& grad) {
  const Tensor dots = (kit::in_opmath(feats) * kit::in_opmath(grad).unsqueeze(-2)).sum(-1);
  return (slopes * dots.unsqueeze(-1)).sum(-2);
}

// DoubleBackward takes grad also where it does not read it. There it need not be given here.
kit::Outputs<DoubleBackward> call_double_backward(const Tensor& grad, const Tensor& feats, const Tensor& points,
                                                  const Tensor& grad_grad_feats, const Tensor& grad_grad_points,
                                                  const std::array<bool, 3>& need) {
  return kit::to_array(DoubleBackward::call(grad.defined() ? grad : feats.select(-2, 0), kit::to_optional(feats),
                                            points, kit::to_optional(grad_grad_feats), grad_grad_points,
                                            kit::to_list(need)));
}

struct ForwardFormula {
  using Op = Forward;
  static constexpr auto reads = kit::reads<Op>({
      {"feats", {"points"}},
      {"points", {"feats", "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const OptionalTensor x = need["points"] ? OptionalTensor(saved["feats"]) : std::nullopt;
    return kit::to_array(Backward::call(grads["output"], x, saved["points"], kit::to_list(need)));
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    const auto [x, p] = saved.get<"feats", "points">();
    const auto [tx, tp] = tangents.get<"feats", "points">();
    Tensor out;
    if (tx.defined()) kit::accumulate(out, Forward::call(tx, p));
    if (tp.defined()) kit::accumulate(out, call_double_backward({}, x, p, {}, tp, {true, false, false})["grad(grad)"]);
    return out;
  }
};

struct BackwardFormula {
  using Op = Backward;
  static constexpr auto reads = kit::reads<Op>({
      {"grad", {"feats", "points"}},
      {"feats", {"grad", "points"}},
      {"points", {"grad", "feats", "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto [g, x, p] = saved.get<"grad", "feats", "points">();
    const auto [grad_of_dx, grad_of_dp] = grads.get<"grad(feats)", "grad(points)">();
    if (grad_of_dp.defined()) {
      return call_double_backward(g, x, p, grad_of_dx, grad_of_dp, {need["grad"], need["feats"], need["points"]});
    }
    kit::Inputs<Op> result;
    if (!grad_of_dx.defined()) return result;
    if (need["grad"]) result["grad"] = Forward::call(grad_of_dx, p);
    if (need["points"]) {
      result["points"] = std::get<1>(Backward::call(g, grad_of_dx, p, c10::List<bool>({false, true})));
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const auto [g, x, p] = saved.get<"grad", "feats", "points">();
    const auto [tg, tx, tp] = tangents.get<"grad", "feats", "points">();
    const bool of_feats = saved.is_requested("grad(feats)"), of_points = saved.is_requested("grad(points)");
    kit::Outputs<Op> result;
    Tensor &dx = result["grad(feats)"], &dp = result["grad(points)"];
    if (tg.defined()) {
      result =
          kit::to_array(Backward::call(tg, kit::to_optional(x), p, kit::to_list(saved.attribute<"output_mask">())));
    }
    if (tx.defined() && of_points) {
      kit::accumulate(dp, std::get<1>(Backward::call(g, tx, p, c10::List<bool>({false, true}))));
    }
    if (tp.defined()) {
      const auto second = call_double_backward(g, x, p, {}, tp, {false, of_feats, of_points});
      if (of_feats) kit::accumulate(dx, second["grad(feats)"]);
      if (of_points) kit::accumulate(dp, second["grad(points)"]);
    }
    return result;
  }
};

// With u = grad_grad_feats and v = grad_grad_points:
//
//   grad_grad   = sum_c w_c u_c + w_c(v) x_c
//   grad_feats  = w_c(v) grad
//   grad_points = sum_c d_k w_c (u_c . grad) + d_k w_c(v) (x_c . grad)
struct DoubleBackwardFormula {
  using Op = DoubleBackward;
  static constexpr auto reads = kit::reads<Op>({
      {"grad", {"feats", "points", "grad_grad_feats", "grad_grad_points"}},
      {"feats", {"grad", "points", "grad_grad_points"}},
      {"points", {"grad", "feats", "points", "grad_grad_feats", "grad_grad_points"}},
      {"grad_grad_feats", {"grad", "points"}},
      {"grad_grad_points", {"grad", "feats", "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<DoubleBackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto [g, x, p, u, v] = saved.get<"grad", "feats", "points", "grad_grad_feats", "grad_grad_points">();
    const auto [of_g, of_x, of_p] = grads.get<"grad(grad)", "grad(feats)", "grad(points)">();
    kit::Inputs<Op> result;
    Tensor &dg = result["grad"], &dx = result["feats"], &dp = result["points"], &du = result["grad_grad_feats"],
           &dv = result["grad_grad_points"];
    if (of_g.defined()) {
      if (need["feats"]) kit::accumulate(dx, spread(weights(p, {v}), of_g));
      if (need["grad_grad_feats"]) kit::accumulate(du, spread(weights(p, {}), of_g));
      if (need["grad_grad_points"]) kit::accumulate(dv, project(slopes(p, {}), x, of_g));
      if (need["points"]) {
        kit::accumulate(dp, project(slopes(p, {v}), x, of_g));
        if (u.defined()) kit::accumulate(dp, project(slopes(p, {}), u, of_g));
      }
    }
    if (of_x.defined()) {
      if (need["grad"]) kit::accumulate(dg, combine(weights(p, {v}), of_x));
      if (need["grad_grad_points"]) kit::accumulate(dv, project(slopes(p, {}), of_x, g));
      if (need["points"]) kit::accumulate(dp, project(slopes(p, {v}), of_x, g));
    }
    if (of_p.defined()) {
      if (need["grad"]) {
        kit::accumulate(dg, combine(weights(p, {v, of_p}), x));
        if (u.defined()) kit::accumulate(dg, combine(weights(p, {of_p}), u));
      }
      if (need["feats"]) kit::accumulate(dx, spread(weights(p, {v, of_p}), g));
      if (need["grad_grad_feats"]) kit::accumulate(du, spread(weights(p, {of_p}), g));
      if (need["grad_grad_points"]) kit::accumulate(dv, project(slopes(p, {of_p}), x, g));
      if (need["points"]) {
        kit::accumulate(dp, project(slopes(p, {v, of_p}), x, g));
        if (u.defined()) kit::accumulate(dp, project(slopes(p, {of_p}), u, g));
      }
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<DoubleBackwardFormula>& saved) {
    const auto [g, x, p, u, v] = saved.get<"grad", "feats", "points", "grad_grad_feats", "grad_grad_points">();
    const auto [tg, tx, tp, tu, tv] = tangents.get<"grad", "feats", "points", "grad_grad_feats", "grad_grad_points">();
    kit::Outputs<Op> result;
    using Directions = std::vector<Tensor>;
    const auto add_grad = [&](const Directions& directions, const Tensor& feats) {
      if (!saved.is_requested("grad(grad)")) return;
      kit::accumulate(result["grad(grad)"], combine(weights(p, directions), feats));
    };
    const auto add_feats = [&](const Directions& directions, const Tensor& grad) {
      if (!saved.is_requested("grad(feats)")) return;
      kit::accumulate(result["grad(feats)"], spread(weights(p, directions), grad));
    };
    const auto add_points = [&](const Directions& directions, const Tensor& feats, const Tensor& grad) {
      if (!saved.is_requested("grad(points)")) return;
      kit::accumulate(result["grad(points)"], project(slopes(p, directions), feats, grad));
    };
    if (tg.defined()) {
      add_feats({v}, tg);
      add_points({v}, x, tg);
      if (u.defined()) add_points({}, u, tg);
    }
    if (tx.defined()) {
      add_grad({v}, tx);
      add_points({v}, tx, g);
    }
    if (tu.defined()) {
      add_grad({}, tu);
      add_points({}, tu, g);
    }
    if (tv.defined()) {
      add_grad({tv}, x);
      add_feats({tv}, g);
      add_points({tv}, x, g);
    }
    if (tp.defined()) {
      add_grad({v, tp}, x);
      add_feats({v, tp}, g);
      add_points({v, tp}, x, g);
      if (u.defined()) {
        add_grad({tp}, u);
        add_points({tp}, u, g);
      }
    }
    return result;
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  m.impl(Forward::name, kit::autograd<ForwardFormula>());
  m.impl(Backward::name, kit::autograd<BackwardFormula>());
  m.impl(DoubleBackward::name, kit::autograd<DoubleBackwardFormula>());
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
