#pragma once

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::lltm_cell {

// Under autocast the matrix product runs in autocast's dtype. The cell state, a sum over the whole sequence, is
// float32.
using UnderAutocast = kit::UnderAutocast<kit::CastPolicy::lower_precision_fp>;

using Forward = kit::Op<
    "cppcuda::lltm_cell(Tensor input[G?, B, I], Tensor weight[G?, 3S, S + I], Tensor bias[G?, 3S], "
    "Tensor hx[G?, B, S], Tensor cx[G?, B, S]) -> "
    "(Tensor hy[G?, B, S], Tensor cy[G?, B, S] like cx, hidden Tensor gates[G?, B, 3S])",
    kit::MayBeWider<"cx">, kit::Independent<"B">, UnderAutocast>;

// Also returns the pre-activations of the gates, which backward reads.
using Cell = Forward::WithHidden;

// Missing gradients are zeros. input and hx may be missing unless the gradient of weight is requested, and weight
// unless a gradient of input or hx is.
using Backward = kit::Op<
    "cppcuda::_lltm_cell_backward(Tensor? grad_hy[G?, B, S], Tensor? grad_cy[G?, B, S] like cx, "
    "Tensor? grad_gates[G?, B, 3S], Tensor gates[G?, B, 3S], Tensor? input[G?, B, I], Tensor? weight[G?, 3S, S + I], "
    "Tensor? hx[G?, B, S], Tensor cx[G?, B, S], bool[5] output_mask) -> "
    "(Tensor grad(input), Tensor grad(weight), Tensor grad(bias)[G?, 3S], Tensor grad(hx), Tensor grad(cx))",
    kit::MayBeWider<"cx">, kit::Independent<"B">, kit::GradientReads<"input", "weight">,
    kit::GradientReads<"hx", "weight">, kit::GradientReads<"weight", "input", "hx">>;

// ---- sequences

using Sequence = kit::Op<
    "cppcuda::lltm(Tensor input[G?, T, B, I], Tensor weight[G?, 3S, S + I], Tensor bias[G?, 3S], "
    "Tensor h0[G?, B, S], Tensor c0[G?, B, S]) -> "
    "(Tensor output[G?, T, B, S], Tensor hn[G?, B, S], Tensor cn[G?, B, S] like c0, "
    "hidden Tensor cells[G?, T, B, S] like c0, hidden Tensor gates[G?, T, B, 3S])",
    kit::MayBeWider<"c0">, kit::Independent<"B">, UnderAutocast>;

// Also returns the states of all cells, and the gates, which backward reads.
using Steps = Sequence::WithHidden;

// Missing gradients are zeros. input, output and h0 may be missing unless the gradient of weight is requested.
using StepsBackward = kit::Op<
    "cppcuda::_lltm_backward(Tensor? grad_output[G?, T, B, S], Tensor? grad_hn[G?, B, S], "
    "Tensor? grad_cn[G?, B, S] like c0, Tensor? grad_cells[G?, T, B, S] like c0, Tensor? grad_gates[G?, T, B, 3S], "
    "Tensor gates[G?, T, B, 3S], Tensor cells[G?, T, B, S] like c0, Tensor? output[G?, T, B, S], "
    "Tensor? input[G?, T, B, I], Tensor weight[G?, 3S, S + I], Tensor? h0[G?, B, S], Tensor c0[G?, B, S], "
    "bool[5] output_mask) -> "
    "(Tensor grad(input)[G?, T, B, I], Tensor grad(weight), Tensor grad(bias)[G?, 3S], Tensor grad(h0)[G?, B, S], "
    "Tensor grad(c0))",
    kit::MayBeWider<"c0">, kit::Independent<"B">, kit::GradientReads<"weight", "input", "output", "h0">>;

}  // namespace cppcuda::ops::lltm_cell
