#pragma once

// The derivatives of a cell. With g = (g0, g1, g2) the gates before their activations, [hx, input] weight^T + bias:
//
//   i = sigmoid(g0), o = sigmoid(g1), c = elu(g2), cy = cx + c i, t = tanh(cy), hy = t o
//
// g is linear in weight, and in (input, hx, bias); the rest is elementwise. Let P(g, cx) = (hy, cy). Backward applies
// the transpose of its Jacobian, (grad_g, grad_cx) = P'^T (grad_hy, grad_cy), and multiplies grad_g by the matrices.
// So, along a direction (tangent_g, tangent_cx),
//
//   (hy, cy) changes by P' (tangent_g, tangent_cx), which is also the transpose of P'^T;
//   P'^T (grad_hy, grad_cy) changes by H (tangent_g, tangent_cx), where H is the Hessian of grad_hy . hy + grad_cy .
//   cy. H is its own transpose: one function serves forward and reverse mode.
//
// A matrix product is a call of the op itself, forward (for the gates) or backward (with given grad_gates), because
// torch.func turns autocast on again inside formulas and would run matmul in 16 bits.

#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "cppcuda/kit/call.h"
#include "ops/lltm_cell/op.h"

namespace cppcuda::ops::lltm_cell {

// new_zeros keeps the tensor subclass of `like`, such as DTensor.
inline Tensor zeros(c10::SymIntArrayRef sizes, const Tensor& like) { return like.new_zeros_symint(sizes); }

// The sizes of t, its last dim replaced.
inline Tensor zeros_of_width(const Tensor& t, const c10::SymInt& width) {
  c10::SymDimVector sizes(t.sym_sizes());
  sizes.back() = width;
  return zeros(sizes, t);
}

// [..., 3S] of [..., B, 3S]
inline Tensor zero_bias(const Tensor& weight) {
  c10::SymDimVector sizes(weight.sym_sizes());
  sizes.pop_back();
  return zeros(sizes, weight);
}

// input, weight, bias and hx: their values, or directions, of which some may be undefined.
struct Affine {
  Tensor input, weight, bias, hx;
};

// The tangent of the gates along the direction d: [d.hx, d.input] weight^T + [hx, input] d.weight^T + d.bias. Undefined
// if the direction is. The sizes are those of `gates`.
inline Tensor gates_along(const Affine& values, const Affine& d, const Tensor& gates) {
  Tensor sum;
  // The gates do not depend on cx, whose place any tensor of its sizes can take.
  auto add_product = [&](const Tensor& hx, const Tensor& input, const Tensor& weight) {
    kit::accumulate(sum, std::get<2>(Cell::call(input, weight, zero_bias(weight), hx, hx)));
  };
  if (d.hx.defined() && d.input.defined()) {
    add_product(d.hx, d.input, values.weight);
  } else if (d.hx.defined()) {  // the columns of weight that hx meets
    const c10::SymInt size = d.hx.sym_size(-1);
    add_product(d.hx, d.hx.narrow_symint(-1, 0, 0), values.weight.narrow_symint(-1, 0, size));
  } else if (d.input.defined()) {
    const c10::SymInt size = values.weight.sym_size(-1) - d.input.sym_size(-1);
    add_product(zeros_of_width(d.input, size), d.input, values.weight);
  }
  if (d.weight.defined()) add_product(values.hx, values.input, d.weight);
  if (d.bias.defined()) {
    const Tensor rows = d.bias.unsqueeze(-2);
    sum = sum.defined() ? sum + rows : rows.expand_symint(gates.sym_sizes());
  }
  return sum;
}

// [..., 3S] in three [..., S].
inline std::array<Tensor, 3> split_gates(const Tensor& gates) {
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
    const auto [g0, g1, g2] = split_gates(gates);
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

  Direction(const Tensor& tangent_gates, const Tensor& tangent_cx, const Tensor& gates, const Tensor& cx_like) {
    const auto parts = split_gates(tangent_gates.defined() ? tangent_gates : at::zeros_like(gates));
    g0 = parts[0], g1 = parts[1], g2 = parts[2];
    cx = kit::in_opmath(tangent_cx.defined() ? tangent_cx : at::zeros_like(cx_like));
  }
};

inline Tensor cy_along(const Pointwise& p, const Direction& d) { return d.cx + p.dc * d.g2 * p.i + p.c * p.di * d.g0; }

inline Tensor hy_along(const Pointwise& p, const Direction& d, const Tensor& cy) {
  return p.dt * cy * p.o + p.t * p.dO * d.g1;
}

// The tangents of (grad_gates, grad_cx) of the backward op along a direction of (gates, cx).
inline std::array<Tensor, 2> hessian_along(const Tensor& grad_hy, const Tensor& grad_cy, const Pointwise& p,
                                           const Direction& d) {
  Tensor total_grad_cy, tangent_total_cy, h1;
  if (grad_cy.defined()) total_grad_cy = kit::in_opmath(grad_cy);
  if (grad_hy.defined()) {
    const Tensor wide_grad_hy = kit::in_opmath(grad_hy), cy = cy_along(p, d);
    kit::accumulate(total_grad_cy, wide_grad_hy * p.o * p.dt);
    tangent_total_cy = wide_grad_hy * (p.dO * d.g1 * p.dt - 2 * p.t * p.o * p.dt * cy);
    h1 = wide_grad_hy * (p.dt * cy * p.dO + p.t * p.ddo * d.g1);
  } else {
    tangent_total_cy = h1 = at::zeros_like(p.i);
  }
  if (!total_grad_cy.defined()) return {};
  const Tensor h0 = tangent_total_cy * p.c * p.di + total_grad_cy * (p.dc * d.g2 * p.di + p.c * p.ddi * d.g0);
  const Tensor h2 = tangent_total_cy * p.i * p.dc + total_grad_cy * (p.di * d.g0 * p.dc + p.i * p.ddc * d.g2);
  return {at::cat({h0, h1, h2}, -1), tangent_total_cy};
}

struct CellFormula : kit::GradientsBy<Cell, Backward> {
  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<CellFormula>& saved) {
    const auto [x, w, b, h, c, g] = saved.get<"input", "weight", "bias", "hx", "cx", "gates">();
    const auto [tangent_input, tangent_weight, tangent_bias, tangent_hx, tangent_cx] =
        tangents.get<"input", "weight", "bias", "hx", "cx">();
    const Tensor tangent_gates =
        gates_along({x, w, b, h}, {tangent_input, tangent_weight, tangent_bias, tangent_hx}, g);
    const Pointwise p(g, c);
    const Direction d(tangent_gates, tangent_cx, g, c);
    const Tensor cy_tangent = cy_along(p, d);
    return {hy_along(p, d, cy_tangent), cy_tangent, tangent_gates};
  }
};

struct CellBackwardFormula {
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

  // The width of input: the gradient of weight has that many columns, and may read neither tensor.
  static constexpr auto attribute_names = kit::names("input_width");
  static auto attributes(const kit::Args<Op>& args) {
    c10::SymInt width = 0;
    if (args["input"].defined()) width = args["input"].sym_size(-1);
    if (args["weight"].defined()) width = args["weight"].sym_size(-1) - args["cx"].sym_size(-1);
    return std::make_tuple(width);
  }

  // The op's gradients from `saved`, but with other matrices; mask: whether grad_input, grad_weight, grad_hx are
  // requested.
  struct Products {
    Tensor grad_input, grad_weight, grad_hx;
  };
  static Products products(const kit::Saved<CellBackwardFormula>& saved, const Tensor& input, const Tensor& weight,
                           const Tensor& hx, std::array<bool, 3> mask) {
    kit::Call<Backward> call(saved);
    call.tensors["input"] = input, call.tensors["weight"] = weight, call.tensors["hx"] = hx;
    call.attribute<"output_mask">() = {mask[0], mask[1], false, mask[2], false};
    const auto found = call.run();
    return {found["grad(input)"], found["grad(weight)"], found["grad(hx)"]};
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<CellBackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto [gh, gc, g, x, w, h, c] = saved.get<"grad_hy", "grad_cy", "gates", "input", "weight", "hx", "cx">();
    const auto [gg_input, gg_weight, gg_bias, gg_hx, gg_cx] =
        grads.get<"grad(input)", "grad(weight)", "grad(bias)", "grad(hx)", "grad(cx)">();
    const c10::SymInt& width = saved.attribute<"input_width">();
    kit::Inputs<Op> result;
    const bool needs_pointwise = need["grad_hy"] || need["grad_cy"] || need["gates"] || need["cx"];
    if (needs_pointwise || need["grad_gates"]) {
      const Tensor gg_gates = gates_along({x, w, {}, h}, {gg_input, gg_weight, gg_bias, gg_hx}, g);
      if (need["grad_gates"] && gg_gates.defined()) result["grad_gates"] = gg_gates.to(g.scalar_type());
      if (needs_pointwise) {
        const Pointwise p(g, c);
        const Direction d(gg_gates, gg_cx, g, c);
        const Tensor cy = cy_along(p, d);
        if (need["grad_hy"]) result["grad_hy"] = hy_along(p, d, cy).to(g.scalar_type());
        if (need["grad_cy"]) result["grad_cy"] = cy.to(c.scalar_type());
        if (need["gates"] || need["cx"]) {
          const auto [grad_gates, grad_cx] = hessian_along(gh, gc, p, d);
          if (need["gates"] && grad_gates.defined()) result["gates"] = grad_gates.to(g.scalar_type());
          if (need["cx"] && grad_cx.defined()) result["cx"] = grad_cx.to(c.scalar_type());
        }
      }
    }
    if (gg_weight.defined() && (need["input"] || need["hx"])) {
      const auto by = products(saved, {}, gg_weight, {}, {need["input"], false, need["hx"]});
      result["input"] = by.grad_input, result["hx"] = by.grad_hx;
    }
    if ((gg_input.defined() || gg_hx.defined()) && need["weight"]) {
      const Tensor full_gg_input = gg_input.defined() ? gg_input : zeros_of_width(gg_hx, width);
      const Tensor full_gg_hx = gg_hx.defined() ? gg_hx : zeros_of_width(gg_input, c.sym_size(-1));
      result["weight"] = products(saved, full_gg_input, {}, full_gg_hx, {false, true, false}).grad_weight;
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<CellBackwardFormula>& saved) {
    const auto [gh, gc, g, x, w, h, c] = saved.get<"grad_hy", "grad_cy", "gates", "input", "weight", "hx", "cx">();
    const auto [tangent_grad_hy, tangent_grad_cy, tangent_grad_gates, tangent_gates] =
        tangents.get<"grad_hy", "grad_cy", "grad_gates", "gates">();
    const auto [tangent_input, tangent_weight, tangent_hx, tangent_cx] = tangents.get<"input", "weight", "hx", "cx">();
    const bool needs_input = saved.is_requested("grad(input)"), needs_hx = saved.is_requested("grad(hx)");
    kit::Outputs<Op> result;

    // The tangent of the gradient of the gates, before the products, acts as a further grad_gates.
    Tensor extra_grad_gates = tangent_grad_gates, extra_grad_cx;
    if (tangent_gates.defined() || tangent_cx.defined()) {
      const auto along = hessian_along(gh, gc, Pointwise(g, c), Direction(tangent_gates, tangent_cx, g, c));
      if (along[0].defined()) kit::accumulate(extra_grad_gates, along[0].to(g.scalar_type()));
      extra_grad_cx = along[1];
    }
    if (tangent_grad_hy.defined() || tangent_grad_cy.defined() || extra_grad_gates.defined()) {
      kit::Call<Backward> call(saved);
      call.tensors["grad_hy"] = tangent_grad_hy, call.tensors["grad_cy"] = tangent_grad_cy;
      call.tensors["grad_gates"] = extra_grad_gates;
      result = call.run();
    }
    if (extra_grad_cx.defined() && saved.is_requested("grad(cx)")) kit::accumulate(result["grad(cx)"], extra_grad_cx);
    if (tangent_weight.defined() && (needs_input || needs_hx)) {
      const auto by = products(saved, {}, tangent_weight, {}, {needs_input, false, needs_hx});
      if (needs_input) kit::accumulate(result["grad(input)"], by.grad_input);
      if (needs_hx) kit::accumulate(result["grad(hx)"], by.grad_hx);
    }
    if ((tangent_input.defined() || tangent_hx.defined()) && saved.is_requested("grad(weight)")) {
      const auto by = products(saved, tangent_input.defined() ? tangent_input : at::zeros_like(x), {},
                               tangent_hx.defined() ? tangent_hx : at::zeros_like(h), {false, true, false});
      kit::accumulate(result["grad(weight)"], by.grad_weight);
    }
    return result;
  }
};

}  // namespace cppcuda::ops::lltm_cell
