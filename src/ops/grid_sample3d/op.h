#pragma once

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::grid_sample3d {

using Forward = kit::Op<
    "cppcuda::grid_sample3d(Tensor input[B?, D, H, W, F], Tensor points[B?, N, 3], str padding_mode=\"zeros\", "
    "bool align_corners=False) -> Tensor[B?, N, F]",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">>;

// input may be missing if only its own gradient is requested, which does not read it.
using Backward = kit::Op<
    "cppcuda::_grid_sample3d_backward(Tensor grad[B?, N, F], Tensor? input[B?, D, H, W, F], Tensor points[B?, N, 3], "
    "SymInt[3] size[D, H, W], str padding_mode, bool align_corners, bool[2] output_mask) -> "
    "(Tensor grad(input), Tensor grad(points))",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">, kit::GradientReads<"points", "input">>;

// The derivative of Backward, where grad_grad_input and grad_grad_points are the gradients of its outputs. input may be
// missing if only its own gradient is requested, and a missing grad_grad_input is zeros. The weights are differentiated
// order[k] times by coordinate k.
using DoubleBackward = kit::Op<
    "cppcuda::_grid_sample3d_double_backward(Tensor grad[B?, N, F], Tensor? input[B?, D, H, W, F], "
    "Tensor points[B?, N, 3], Tensor? grad_grad_input[B?, D, H, W, F], "
    "Tensor grad_grad_points[B?, N, 3] like points, SymInt[3] size[D, H, W], str padding_mode, bool align_corners, "
    "bool[3] output_mask, int[] order=[]) -> "
    "(Tensor grad(grad), Tensor grad(input)[B?, D, H, W, F], Tensor grad(points))",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">, kit::GradientReads<"grad", "input">,
    kit::GradientReads<"points", "input">>;

}  // namespace cppcuda::ops::grid_sample3d
