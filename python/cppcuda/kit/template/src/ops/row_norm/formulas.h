// The derivatives, which call differentiable operators only, so that all higher orders follow. Change: all of it.
//
// With x the input, r = rstd, y = r x the output, m(a, b) the mean of a b over the F values of a row, and g the
// gradient of y:
//
//   r          = 1 / sqrt(m(x, x) + eps)    its derivative is -r^2 y / F
//   grad_input = r (g - y m(g, y))          through y and through r
//
// As a function of g this is a symmetric matrix, so the tangent of y is the same expression with the tangent of x in
// place of g. In the backward operator r is a variable of its own. With h the gradient of grad_input, the gradients are
//
//   of g: r (h - y m(h, y))    of x: -r^2 (h m(g, y) + g m(h, y))    of r: the sum of h (g - 3 y m(g, y)) over the row
#pragma once

#include "cppcuda/kit/formula.h"
#include "ops/row_norm/op.h"

namespace my_ops::ops::row_norm {
using kit::accumulate;
using kit::in_opmath;

// [B?, N] -> [B?, N, 1]
inline Tensor per_row(const Tensor& t) { return in_opmath(t).unsqueeze(-1); }

// [B?, N, F], [B?, N, F] -> [B?, N, 1]
inline Tensor mean(const Tensor& a, const Tensor& b) { return (a * b).mean(-1, /*keepdim=*/true); }

struct ForwardFormula {
  using Op = ForwardWithRstd;
  static constexpr auto reads = kit::reads_of<Op, Backward>();

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    const auto [input, rstd] = saved.get<"input", "rstd">();
    const auto [grad_output, grad_rstd] = grads.get<"output", "rstd">();  // undefined if zero
    Tensor grad;
    if (grad_output.defined()) accumulate(grad, Backward::call(grad_output, rstd, input));
    if (grad_rstd.defined()) {
      const Tensor r = per_row(rstd), y = in_opmath(input) * r;
      accumulate(grad, -per_row(grad_rstd) * r * r * y / input.sym_size(-1));
    }
    return grad;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    const auto [input, rstd] = saved.get<"input", "rstd">();
    const Tensor tangent = tangents["input"], r = per_row(rstd), y = in_opmath(input) * r;
    const Tensor tangent_rstd = -r * r * mean(y, in_opmath(tangent));
    return {Backward::call(tangent, rstd, input), tangent_rstd.squeeze(-1)};
  }
};

struct BackwardFormula {
  using Op = Backward;
  static constexpr auto reads = kit::reads<Op>({
      {"grad", {"input", "rstd"}},
      {"input", {"grad", "input", "rstd"}},
      {"rstd", {"grad", "input", "rstd"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto [grad, input, rstd] = saved.get<"grad", "input", "rstd">();
    const Tensor grad_result = grads["grad(input)"];
    kit::Inputs<Op> result;
    if (need["grad"]) result["grad"] = Backward::call(grad_result, rstd, input);
    if (!need["input"] && !need["rstd"]) return result;  // then grad was not saved
    const Tensor g = in_opmath(grad), h = in_opmath(grad_result), r = per_row(rstd), y = in_opmath(input) * r;
    if (need["input"]) result["input"] = -r * r * (h * mean(g, y) + g * mean(h, y));
    if (need["rstd"]) result["rstd"] = (h * (g - 3 * y * mean(g, y))).sum(-1);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const auto [grad, input, rstd] = saved.get<"grad", "input", "rstd">();
    const auto [tangent_grad, tangent_input, tangent_rstd] = tangents.get<"grad", "input", "rstd">();
    const Tensor g = in_opmath(grad), r = per_row(rstd), y = in_opmath(input) * r;
    Tensor result, tangent_y;
    if (tangent_grad.defined()) accumulate(result, Backward::call(tangent_grad, rstd, input));
    if (tangent_input.defined()) accumulate(tangent_y, in_opmath(tangent_input) * r);
    if (tangent_rstd.defined()) {
      accumulate(tangent_y, in_opmath(input) * per_row(tangent_rstd));
      accumulate(result, per_row(tangent_rstd) * (g - y * mean(g, y)));
    }
    if (tangent_y.defined()) accumulate(result, -r * (tangent_y * mean(g, y) + y * mean(g, tangent_y)));
    return result;
  }
};

}  // namespace my_ops::ops::row_norm
