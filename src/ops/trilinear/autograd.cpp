// With the weights w_c(p) of the corners, their slopes d_k w_c(p) and the corner features x_c (dot products are over
// f):
//
//   out         = sum_c w_c x_c
//   grad_feats  = w_c grad
//   grad_points = sum_c d_k w_c (x_c . grad)
//
// All of these are linear in feats and grad, and w_c is linear in each coordinate, so every derivative below is the
// same expression with a slope in place of a factor.

#include "cppcuda/kit/autograd.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
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

Tensor along(const Tensor& direction, int64_t d) { return kit::in_opmath(direction.select(-1, d)).unsqueeze(-1); }

// sum_k direction_k d_k w_c: [..., 3] -> [..., 8]
Tensor weights_along(const Tensor& points, const Tensor& direction) {
  const Factors w = factors(points);
  const Tensor dw = slope(points);
  return along(direction, 0) * outer_product({dw, w[1], w[2]}) + along(direction, 1) * outer_product({w[0], dw, w[2]}) +
         along(direction, 2) * outer_product({w[0], w[1], dw});
}

// sum_k direction_k d_k d_l w_c: [..., 3] -> [..., 8, 3]. Second derivatives with respect to one coordinate are 0.
Tensor slopes_along(const Tensor& points, const Tensor& direction) {
  const Factors w = factors(points);
  const Tensor dw = slope(points);
  const Tensor by01 = outer_product({dw, dw, w[2]}), by02 = outer_product({dw, w[1], dw}),
               by12 = outer_product({w[0], dw, dw});
  const Tensor b0 = along(direction, 0), b1 = along(direction, 1), b2 = along(direction, 2);
  return at::stack({b1 * by01 + b2 * by02, b0 * by01 + b2 * by12, b0 * by02 + b1 * by12}, -1);
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
    if (tp.defined()) kit::accumulate(out, combine(weights_along(p, tp), x));
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
    kit::Inputs<Op> result;
    if (grad_of_dx.defined()) {
      if (need["grad"]) kit::accumulate(result["grad"], Forward::call(grad_of_dx, p));
      if (need["points"]) {
        kit::accumulate(result["points"],
                        std::get<1>(Backward::call(g, grad_of_dx, p, c10::List<bool>({false, true}))));
      }
    }
    if (grad_of_dp.defined()) {
      const Tensor weights = weights_along(p, grad_of_dp);
      if (need["grad"]) kit::accumulate(result["grad"], combine(weights, x));
      if (need["feats"]) kit::accumulate(result["feats"], spread(weights, g));
      if (need["points"]) kit::accumulate(result["points"], project(slopes_along(p, grad_of_dp), x, g));
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
      if (of_feats) kit::accumulate(dx, spread(weights_along(p, tp), g));
      if (of_points) kit::accumulate(dp, project(slopes_along(p, tp), x, g));
    }
    return result;
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  m.impl(Forward::name, kit::autograd<ForwardFormula>());
  m.impl(Backward::name, kit::autograd<BackwardFormula>());
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
