// With weights w_c(p) of the corners, their slopes d_k w_c(p) and the corner features x_c (dots are
// over f):
//
//   out      = sum_c w_c x_c
//   d feats  = w_c grad
//   d points = sum_c d_k w_c (x_c . grad)
//
// All of it is linear in feats and in grad, and w_c is linear in each coordinate, so every
// derivative below is the same expression with a slope in place of a factor.

#include "core/autograd.h"

#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "ops/trilinear/schema.h"

namespace cppcuda::ops::trilinear {
namespace {

// One factor per axis, [..., 2] each.
using Factors = std::array<Tensor, 3>;

Factors factors(const Tensor& points) {
  Factors result;
  for (int64_t d = 0; d < 3; ++d) {
    const Tensor p = core::in_opmath(points.select(-1, d));
    result[d] = at::stack({(1 - p) / 2, (1 + p) / 2}, -1);
  }
  return result;
}

// The derivative of a factor by its coordinate, [..., 2], the same on every axis.
Tensor slope(const Tensor& points) {
  const Tensor half = at::full_like(core::in_opmath(points.select(-1, 0)), 0.5);
  return at::stack({-half, half}, -1);
}

// [..., 8]
Tensor product(const Factors& f) {
  return (f[0].unsqueeze(-1).unsqueeze(-1) * f[1].unsqueeze(-2).unsqueeze(-1) * f[2].unsqueeze(-2).unsqueeze(-2))
      .flatten(-3);
}

Tensor along(const Tensor& direction, int64_t d) { return core::in_opmath(direction.select(-1, d)).unsqueeze(-1); }

// sum_k direction_k d_k w_c: [..., 3] -> [..., 8]
Tensor weights_along(const Tensor& points, const Tensor& direction) {
  const Factors w = factors(points);
  const Tensor dw = slope(points);
  return along(direction, 0) * product({dw, w[1], w[2]}) + along(direction, 1) * product({w[0], dw, w[2]}) +
         along(direction, 2) * product({w[0], w[1], dw});
}

// sum_k direction_k d_k d_l w_c: [..., 3] -> [..., 8, 3]. Twice by one coordinate is 0.
Tensor slopes_along(const Tensor& points, const Tensor& direction) {
  const Factors w = factors(points);
  const Tensor dw = slope(points);
  const Tensor by01 = product({dw, dw, w[2]}), by02 = product({dw, w[1], dw}), by12 = product({w[0], dw, dw});
  const Tensor b0 = along(direction, 0), b1 = along(direction, 1), b2 = along(direction, 2);
  return at::stack({b1 * by01 + b2 * by02, b0 * by01 + b2 * by12, b0 * by02 + b1 * by12}, -1);
}

// Products and sums rather than matmul, which autocast would run in 16 bits where functorch turns it on again.

// sum_c weights_c feats_c: [..., 8], [..., 8, F] -> [..., F]
Tensor combine(const Tensor& weights, const Tensor& feats) {
  return (weights.unsqueeze(-1) * core::in_opmath(feats)).sum(-2).to(feats.scalar_type());
}

// weights_c grad: [..., 8], [..., F] -> [..., 8, F]
Tensor spread(const Tensor& weights, const Tensor& grad) {
  return (weights.unsqueeze(-1) * core::in_opmath(grad).unsqueeze(-2)).to(grad.scalar_type());
}

// sum_c slopes_c (feats_c . grad): [..., 8, 3] -> [..., 3]
Tensor project(const Tensor& slopes, const Tensor& feats, const Tensor& grad) {
  const Tensor dots = (core::in_opmath(feats) * core::in_opmath(grad).unsqueeze(-2)).sum(-1);
  return (slopes * dots.unsqueeze(-1)).sum(-2);
}

struct ForwardFormula {
  using Op = Forward;
  enum : unsigned { feats = 1, points = 2 };
  static constexpr std::array<core::Reads, 2> reads{{
      /*feats*/ {.inputs = points},
      /*points*/ {.inputs = feats | points},
  }};

  static std::array<Tensor, 2> vjp(const std::array<Tensor, 1>& grads, const core::Saved<ForwardFormula>& saved,
                                   const std::array<bool, 2>& need) {
    const auto& [x, p] = saved.inputs;
    return core::to_array(Backward::call(grads[0], need[1] ? OptionalTensor(x) : std::nullopt, p, core::list(need)));
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 2>& tangents, const core::Saved<ForwardFormula>& saved) {
    const auto& [x, p] = saved.inputs;
    const auto& [tx, tp] = tangents;
    Tensor out;
    if (tx.defined()) core::accumulate(out, Forward::call(tx, p));
    if (tp.defined()) core::accumulate(out, combine(weights_along(p, tp), x));
    return {out};
  }
};

struct BackwardFormula {
  using Op = Backward;
  enum : unsigned { grad = 1, feats = 2, points = 4 };
  static constexpr std::array<core::Reads, 3> reads{{
      /*grad*/ {.inputs = feats | points},
      /*feats*/ {.inputs = grad | points},
      /*points*/ {.inputs = grad | feats | points},
  }};

  static std::array<Tensor, 3> vjp(const std::array<Tensor, 2>& grads, const core::Saved<BackwardFormula>& saved,
                                   const std::array<bool, 3>& need) {
    const auto& [g, x, p] = saved.inputs;
    const auto& [grad_of_dx, grad_of_dp] = grads;
    std::array<Tensor, 3> result;
    auto& [by_g, by_x, by_p] = result;
    if (grad_of_dx.defined()) {
      if (need[0]) core::accumulate(by_g, Forward::call(grad_of_dx, p));
      if (need[2])
        core::accumulate(by_p, std::get<1>(Backward::call(g, grad_of_dx, p, c10::List<bool>({false, true}))));
    }
    if (grad_of_dp.defined()) {
      const Tensor weights = weights_along(p, grad_of_dp);
      if (need[0]) core::accumulate(by_g, combine(weights, x));
      if (need[1]) core::accumulate(by_x, spread(weights, g));
      if (need[2]) core::accumulate(by_p, project(slopes_along(p, grad_of_dp), x, g));
    }
    return result;
  }

  static std::array<Tensor, 2> jvp(const std::array<Tensor, 3>& tangents, const core::Saved<BackwardFormula>& saved) {
    const auto& [g, x, p] = saved.inputs;
    const auto& [tg, tx, tp] = tangents;
    const auto& mask = std::get<0>(saved.attributes);
    std::array<Tensor, 2> result;
    auto& [dx, dp] = result;
    if (tg.defined()) result = core::to_array(Backward::call(tg, core::optional(x), p, core::list(mask)));
    if (tx.defined() && mask[1]) {
      core::accumulate(dp, std::get<1>(Backward::call(g, tx, p, c10::List<bool>({false, true}))));
    }
    if (tp.defined()) {
      if (mask[0]) core::accumulate(dx, spread(weights_along(p, tp), g));
      if (mask[1]) core::accumulate(dp, project(slopes_along(p, tp), x, g));
    }
    return result;
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  m.impl(Forward::name, core::autograd<ForwardFormula>());
  m.impl(Backward::name, core::autograd<BackwardFormula>());
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
