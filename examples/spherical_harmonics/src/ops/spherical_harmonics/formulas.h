// The derivatives, which call differentiable operators only, so that all higher orders follow.
//
// A derivative of a solid harmonic R_i is a sum of harmonics of one degree less, dR_i/dx_d = sum over j of D_d[i, j]
// R_j with constant matrices D_d. Partials applies them, PartialsTransposed their transposes, and each is the
// derivative of the other. For a gradient g of the harmonics and a direction h of the points
//
//   Backward(g, x)_d = sum over i of g_i dR_i/dx_d
//   tangent of R     = sum over d of h_d D_d R
//   Hessian h        = Backward(sum over d of h_d D_d^T g, x) with a degree less
//
// The Hessian is that of the number <g, R(x)>. It is symmetric, so this is the tangent of Backward as well as its
// gradient with respect to x.
//
// The harmonics of directions are R(u) with u = x / r, whose derivative is the projection P v = (v - u (u . v)) / r.
#pragma once

#include "cppcuda/kit/call.h"
#include "ops/spherical_harmonics/op.h"

namespace sph::ops::spherical_harmonics {
using kit::accumulate;
using kit::in_opmath;

// [B?, N, 3], [B?, N, 3] -> [B?, N, 1]
inline Tensor dot_rows(const Tensor& a, const Tensor& b) { return (a * b).sum(-1, /*keepdim=*/true); }

// The points at which the solid harmonics are computed.
struct Points {
  int64_t degree;
  bool normalize;
  Tensor u;        // [B?, N, 3]: the directions of the points, or the points themselves
  Tensor inverse;  // [B?, N, 1]: 1 / r, or undefined

  template <class Saved>
  explicit Points(const Saved& saved)
      : degree(saved.template attribute<"degree">()),
        normalize(saved.template attribute<"normalize">()),
        u(in_opmath(saved["xyz"])) {
    if (!normalize) return;
    // As in the kernels, 1 / r is zero at the origin, and so are all derivatives.
    const Tensor square = dot_rows(u, u), nonzero = (square > 0).to(square.scalar_type());
    inverse = (square + (1 - nonzero)).rsqrt() * nonzero;
    u = u * inverse;
  }

  Tensor project(const Tensor& v) const { return normalize ? (v - u * dot_rows(u, v)) * inverse : v; }

  // The derivative of the harmonics in direction h.
  Tensor tangent(const Tensor& h) const {
    const Tensor lower = degree == 0 ? u.narrow(-1, 0, 0) : Forward::call(u, degree - 1, /*normalize=*/false);
    return (project(in_opmath(h)).unsqueeze(-1) * Partials::call(lower, degree)).sum(-2);
  }

  // The Hessian of the sum of grad times the harmonics, times h. Undefined if it is zero.
  Tensor hessian(const Tensor& grad, const Tensor& h) const {
    if (degree == 0) return {};
    const Tensor g = in_opmath(grad), wide_h = in_opmath(h), q = project(wide_h);
    const Tensor lower = PartialsTransposed::call(q.unsqueeze(-1) * g.unsqueeze(-2), degree);
    const Tensor result = project(Backward::call(lower, u, degree - 1, /*normalize=*/false));
    if (!normalize) return result;
    // The projection depends on the point, too.
    const Tensor w = Backward::call(g, u, degree, /*normalize=*/false);
    return result - inverse * (u * dot_rows(q, w) + q * dot_rows(u, w) + project(w) * dot_rows(u, wide_h));
  }
};

struct ForwardFormula : kit::GradientsBy<Forward, Backward> {
  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    return Points(saved).tangent(tangents["xyz"]);
  }
};

struct BackwardFormula {
  using Op = Backward;
  static constexpr auto reads = kit::reads<Op>({{"grad", {"xyz"}}, {"xyz", {"grad", "xyz"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const Points points(saved);
    const Tensor h = grads["grad(xyz)"];
    kit::Inputs<Op> result;
    if (need["grad"]) result["grad"] = points.tangent(h);
    if (need["xyz"]) result["xyz"] = points.hessian(saved["grad"], h);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const Points points(saved);
    const auto [tangent_grad, tangent_xyz] = tangents.get<"grad", "xyz">();
    Tensor result;
    if (tangent_grad.defined()) {
      result = in_opmath(Backward::call(tangent_grad, saved["xyz"], points.degree, points.normalize));
    }
    if (tangent_xyz.defined()) accumulate(result, points.hessian(saved["grad"], tangent_xyz));
    return result;
  }
};

// Linear: the derivative is the operator itself, or its transpose.
template <class TheOp, class Transposed>
struct LinearFormula {
  using Op = TheOp;
  static constexpr auto reads = kit::reads_nothing<Op>();

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<LinearFormula>& saved,
                             const kit::Need<Op>&) {
    return Transposed::call(grads[0], saved.template attribute<"degree">());
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<LinearFormula>& saved) {
    return TheOp::call(tangents[0], saved.template attribute<"degree">());
  }
};

}  // namespace sph::ops::spherical_harmonics
