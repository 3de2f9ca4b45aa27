// With g = (g0, g1, g2) the gates before their activations, [hx, input] weight^T + bias:
//
//   i = sigmoid(g0), o = sigmoid(g1), c = elu(g2), cy = cx + c i, t = tanh(cy), hy = t o
//
// g is linear in weight, and in (input, hx, bias); the rest is elementwise. Let P(g, cx) = (hy, cy). Backward is the
// transpose of its Jacobian, (d_g, d_cx) = P'^T (grad_hy, grad_cy), followed by the products of d_g with the matrices.
// So
//
//   along a direction (dg, dcx)   (hy, cy) changes by P' (dg, dcx), and that is also the transpose of P'^T;
//   P'^T (grad_hy, grad_cy)       changes by H (dg, dcx), H the Hessian of grad_hy . hy + grad_cy . cy, which is its
//   own
//                                 transpose: one function for forward and reverse mode.
//
// Where a matrix product is due, it is one of the op itself, forward (the gates of it) or backward (from given d_g):
// torch.func turns autocast on again inside formulas, and would run matmul in 16 bits.

#include "cppcuda/kit/autograd.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "ops/lltm_cell/op.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// new_zeros keeps the tensor subclass of `like`, such as DTensor.
Tensor zeros(c10::SymIntArrayRef sizes, const Tensor& like) { return like.new_zeros_symint(sizes); }

// The sizes of t, its last dim replaced.
Tensor zeros_of_width(const Tensor& t, const c10::SymInt& width) {
  c10::SymDimVector sizes(t.sym_sizes());
  sizes.back() = width;
  return zeros(sizes, t);
}

// [..., 3S] of [..., B, 3S]
Tensor zero_bias(const Tensor& weight) {
  c10::SymDimVector sizes(weight.sym_sizes());
  sizes.pop_back();
  return zeros(sizes, weight);
}

// input, weight, bias and hx: their values, or directions, of which some may be undefined.
struct Affine {
  Tensor input, weight, bias, hx;
};

// How the gates change along a direction: [d_hx, d_input] weight^T + [hx, input] d_weight^T + d_bias. Undefined if the
// direction is. `gates` says the sizes.
Tensor gates_along(const Affine& at, const Affine& d, const Tensor& gates) {
  Tensor sum;
  // The gates do not depend on cx, whose place any tensor of its sizes can take.
  auto product = [&](const Tensor& hx, const Tensor& input, const Tensor& weight) {
    kit::accumulate(sum, std::get<2>(Cell::call(input, weight, zero_bias(weight), hx, hx)));
  };
  if (d.hx.defined() && d.input.defined()) {
    product(d.hx, d.input, at.weight);
  } else if (d.hx.defined()) {  // the columns of weight that hx meets
    const c10::SymInt size = d.hx.sym_size(-1);
    product(d.hx, d.hx.narrow_symint(-1, 0, 0), at.weight.narrow_symint(-1, 0, size));
  } else if (d.input.defined()) {
    const c10::SymInt size = at.weight.sym_size(-1) - d.input.sym_size(-1);
    product(zeros_of_width(d.input, size), d.input, at.weight);
  }
  if (d.weight.defined()) product(at.hx, at.input, d.weight);
  if (d.bias.defined()) {
    const Tensor rows = d.bias.unsqueeze(-2);
    sum = sum.defined() ? sum + rows : rows.expand_symint(gates.sym_sizes());
  }
  return sum;
}

// [..., 3S] in three [..., S].
std::array<Tensor, 3> chunks(const Tensor& gates) {
  const auto parts = kit::in_opmath(gates).chunk(3, -1);
  return {parts[0], parts[1], parts[2]};
}

// P at (gates, cx), with derivatives.
struct Pointwise {
  Tensor i, di, ddi;  // sigmoid(g0), first and second derivative
  Tensor o, dO, ddo;
  Tensor c, dc, ddc;
  Tensor t, dt;  // tanh(cy)

  Pointwise(const Tensor& gates, const Tensor& cx) {
    const auto [g0, g1, g2] = chunks(gates);
    i = at::sigmoid(g0);
    di = i * (1 - i);
    ddi = di * (1 - 2 * i);
    o = at::sigmoid(g1);
    dO = o * (1 - o);
    ddo = dO * (1 - 2 * o);
    // exp of nothing above 0: infinity times the 0 of the branch not taken would be NaN in the next derivative.
    const Tensor negative = g2 < 0, zero = at::zeros_like(g2);
    c = at::elu(g2);
    dc = at::exp(at::where(negative, g2, zero));
    ddc = at::where(negative, dc, zero);
    t = at::tanh(kit::in_opmath(cx) + c * i);
    dt = 1 - t * t;
  }
};

// A direction of (gates, cx).
struct Direction {
  Tensor g0, g1, g2, cx;

  Direction(const Tensor& d_gates, const Tensor& d_cx, const Tensor& gates, const Tensor& cx_like) {
    const auto parts = chunks(d_gates.defined() ? d_gates : at::zeros_like(gates));
    g0 = parts[0], g1 = parts[1], g2 = parts[2];
    cx = kit::in_opmath(d_cx.defined() ? d_cx : at::zeros_like(cx_like));
  }
};

Tensor cy_along(const Pointwise& p, const Direction& d) { return d.cx + p.dc * d.g2 * p.i + p.c * p.di * d.g0; }

Tensor hy_along(const Pointwise& p, const Direction& d, const Tensor& cy) {
  return p.dt * cy * p.o + p.t * p.dO * d.g1;
}

// How (d_gates, d_cx) of the backward op change along a direction of (gates, cx).
std::array<Tensor, 2> hessian_along(const Tensor& grad_hy, const Tensor& grad_cy, const Pointwise& p,
                                    const Direction& d) {
  Tensor by_cy, d_by_cy, h1;
  if (grad_cy.defined()) by_cy = kit::in_opmath(grad_cy);
  if (grad_hy.defined()) {
    const Tensor by_hy = kit::in_opmath(grad_hy), cy = cy_along(p, d);
    kit::accumulate(by_cy, by_hy * p.o * p.dt);
    d_by_cy = by_hy * (p.dO * d.g1 * p.dt - 2 * p.t * p.o * p.dt * cy);
    h1 = by_hy * (p.dt * cy * p.dO + p.t * p.ddo * d.g1);
  } else {
    d_by_cy = h1 = at::zeros_like(p.i);
  }
  if (!by_cy.defined()) return {};
  const Tensor h0 = d_by_cy * p.c * p.di + by_cy * (p.dc * d.g2 * p.di + p.c * p.ddi * d.g0);
  const Tensor h2 = d_by_cy * p.i * p.dc + by_cy * (p.di * d.g0 * p.dc + p.i * p.ddc * d.g2);
  return {at::cat({h0, h1, h2}, -1), d_by_cy};
}

struct CellFormula {
  using Op = Cell;
  static constexpr auto reads = kit::reads<Op>({
      {"input", {"weight", "cx", "gates"}},
      {"weight", {"input", "hx", "cx", "gates"}},
      {"bias", {"cx", "gates"}},
      {"hx", {"weight", "cx", "gates"}},
      {"cx", {"cx", "gates"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<CellFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto when = [](bool read, const Tensor& t) { return read ? kit::to_optional(t) : std::nullopt; };
    return kit::to_array(Backward::call(
        kit::to_optional(grads["hy"]), kit::to_optional(grads["cy"]), kit::to_optional(grads["gates"]), saved["gates"],
        when(need["weight"], saved["input"]), when(need["input"] || need["hx"], saved["weight"]),
        when(need["weight"], saved["hx"]), saved["cx"], kit::to_list(need)));
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<CellFormula>& saved) {
    const auto [x, w, b, h, c, g] = saved.get<"input", "weight", "bias", "hx", "cx", "gates">();
    const auto [tx, tw, tb, th, tc] = tangents.get<"input", "weight", "bias", "hx", "cx">();
    const Tensor tg = gates_along({x, w, b, h}, {tx, tw, tb, th}, g);
    const Pointwise p(g, c);
    const Direction d(tg, tc, g, c);
    const Tensor cy_tangent = cy_along(p, d);
    return {hy_along(p, d, cy_tangent), cy_tangent, tg};
  }
};

struct BackwardFormula {
  using Op = Backward;
  static constexpr auto reads = kit::reads<Op>({
      {"grad_hy", {"gates", "cx", "input", "weight", "hx"}},
      {"grad_cy", {"gates", "cx", "input", "weight", "hx"}},
      {"grad_gates", {"gates", "input", "weight", "hx"}},
      {"gates", {"grad_hy", "grad_cy", "gates", "cx", "input", "weight", "hx"}},
      {"input", {"grad_hy", "grad_cy", "grad_gates", "gates", "cx"}},
      {"weight", {"grad_hy", "grad_cy", "grad_gates", "gates", "cx"}},
      {"hx", {"grad_hy", "grad_cy", "grad_gates", "gates", "cx"}},
      {"cx", {"grad_hy", "grad_cy", "gates", "cx", "input", "weight", "hx"}},
  });

  // The width of input, of which the cotangent of weight has columns without reading either.
  static auto attributes(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&,
                         const OptionalTensor& input, const OptionalTensor& weight, const OptionalTensor&,
                         const Tensor& cx, const c10::List<bool>&) {
    c10::SymInt width = 0;
    if (input) width = input->sym_size(-1);
    if (weight) width = weight->sym_size(-1) - cx.sym_size(-1);
    return std::make_tuple(width);
  }

  // The products of what the op computes from `saved`, with other matrices; mask: of d_input, d_weight, d_hx.
  struct Products {
    Tensor d_input, d_weight, d_hx;
  };
  static Products products(const kit::Saved<BackwardFormula>& saved, const Tensor& input, const Tensor& weight,
                           const Tensor& hx, std::array<bool, 3> mask) {
    const auto [gh, gc, gg, g, c] = saved.get<"grad_hy", "grad_cy", "grad_gates", "gates", "cx">();
    const auto [d_input, d_weight, d_bias, d_hx, d_cx] = Backward::call(
        kit::to_optional(gh), kit::to_optional(gc), kit::to_optional(gg), g, kit::to_optional(input),
        kit::to_optional(weight), kit::to_optional(hx), c, c10::List<bool>({mask[0], mask[1], false, mask[2], false}));
    return {d_input, d_weight, d_hx};
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto [gh, gc, g, x, w, h, c] = saved.get<"grad_hy", "grad_cy", "gates", "input", "weight", "hx", "cx">();
    const auto [of_dx, of_dw, of_db, of_dh, of_dc] =
        grads.get<"grad(input)", "grad(weight)", "grad(bias)", "grad(hx)", "grad(cx)">();
    const c10::SymInt& width = std::get<1>(saved.attributes);  // after output_mask
    kit::Inputs<Op> result;
    const bool of_pointwise = need["grad_hy"] || need["grad_cy"] || need["gates"] || need["cx"];
    if (of_pointwise || need["grad_gates"]) {
      const Tensor along = gates_along({x, w, {}, h}, {of_dx, of_dw, of_db, of_dh}, g);
      if (need["grad_gates"] && along.defined()) result["grad_gates"] = along.to(g.scalar_type());
      if (of_pointwise) {
        const Pointwise p(g, c);
        const Direction d(along, of_dc, g, c);
        const Tensor cy = cy_along(p, d);
        if (need["grad_hy"]) result["grad_hy"] = hy_along(p, d, cy).to(g.scalar_type());
        if (need["grad_cy"]) result["grad_cy"] = cy.to(c.scalar_type());
        if (need["gates"] || need["cx"]) {
          const auto [of_gates, of_cx] = hessian_along(gh, gc, p, d);
          if (need["gates"] && of_gates.defined()) result["gates"] = of_gates.to(g.scalar_type());
          if (need["cx"] && of_cx.defined()) result["cx"] = of_cx.to(c.scalar_type());
        }
      }
    }
    if (of_dw.defined() && (need["input"] || need["hx"])) {
      const auto by = products(saved, {}, of_dw, {}, {need["input"], false, need["hx"]});
      result["input"] = by.d_input, result["hx"] = by.d_hx;
    }
    if ((of_dx.defined() || of_dh.defined()) && need["weight"]) {
      const Tensor of_input = of_dx.defined() ? of_dx : zeros_of_width(of_dh, width);
      const Tensor of_hx = of_dh.defined() ? of_dh : zeros_of_width(of_dx, c.sym_size(-1));
      result["weight"] = products(saved, of_input, {}, of_hx, {false, true, false}).d_weight;
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const auto [gh, gc, g, x, w, h, c] = saved.get<"grad_hy", "grad_cy", "gates", "input", "weight", "hx", "cx">();
    const auto [tgh, tgc, tgg, tg] = tangents.get<"grad_hy", "grad_cy", "grad_gates", "gates">();
    const auto [tx, tw, th, tc] = tangents.get<"input", "weight", "hx", "cx">();
    const bool of_input = saved.is_requested("grad(input)"), of_hx = saved.is_requested("grad(hx)");
    kit::Outputs<Op> result;

    // Along (gates, cx) what the op computes before its products changes by of_gates, which is one more grad_gates.
    Tensor of_gates = tgg, of_cx;
    if (tg.defined() || tc.defined()) {
      const auto along = hessian_along(gh, gc, Pointwise(g, c), Direction(tg, tc, g, c));
      if (along[0].defined()) kit::accumulate(of_gates, along[0].to(g.scalar_type()));
      of_cx = along[1];
    }
    if (tgh.defined() || tgc.defined() || of_gates.defined()) {
      result = kit::to_array(Backward::call(kit::to_optional(tgh), kit::to_optional(tgc), kit::to_optional(of_gates), g,
                                            kit::to_optional(x), kit::to_optional(w), kit::to_optional(h), c,
                                            kit::to_list(saved.attribute<"output_mask">())));
    }
    if (of_cx.defined() && saved.is_requested("grad(cx)")) kit::accumulate(result["grad(cx)"], of_cx);
    if (tw.defined() && (of_input || of_hx)) {
      const auto by = products(saved, {}, tw, {}, {of_input, false, of_hx});
      if (of_input) kit::accumulate(result["grad(input)"], by.d_input);
      if (of_hx) kit::accumulate(result["grad(hx)"], by.d_hx);
    }
    if ((tx.defined() || th.defined()) && saved.is_requested("grad(weight)")) {
      const auto by = products(saved, tx.defined() ? tx : at::zeros_like(x), {}, th.defined() ? th : at::zeros_like(h),
                               {false, true, false});
      kit::accumulate(result["grad(weight)"], by.d_weight);
    }
    return result;
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  // A gradient needs the gates, which only _lltm_cell returns.
  m.impl(Forward::name, kit::autograd_through<Forward, Cell>());
  m.impl(Cell::name, kit::autograd<CellFormula>());
  m.impl(Backward::name, kit::autograd<BackwardFormula>());
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
