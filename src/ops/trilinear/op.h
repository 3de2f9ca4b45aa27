#pragma once

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::trilinear {

using Forward = kit::Op<
    "cppcuda::trilinear(Tensor feats[B?, N, 8, F], Tensor "
    "points[B?, N, 3]) -> Tensor[B?, N, F]",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">>;

// feats may be missing if only its own gradient is requested, which does not read it.
using Backward = kit::Op<
    "cppcuda::_trilinear_backward(Tensor grad[B?, N, F], Tensor? "
    "feats[B?, N, 8, F], Tensor points[B?, N, 3], "
    "bool[2] output_mask) -> (Tensor grad(feats), Tensor grad(points))",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">, kit::GradientReads<"points", "feats">>;

// The derivative of Backward, where grad_grad_feats and grad_grad_points are the gradients of its outputs. feats may be
// missing if only its own gradient is requested, and a missing grad_grad_feats is zeros.
using DoubleBackward = kit::Op<
    "cppcuda::_trilinear_double_backward(Tensor grad[B?, N, F], Tensor? "
    "feats[B?, N, 8, F], Tensor points[B?, N, 3], "
    "Tensor? grad_grad_feats[B?, N, 8, F], Tensor grad_grad_points[B?, N, 3] "
    "like points, bool[3] output_mask) -> "
    "(Tensor grad(grad), Tensor grad(feats)[B?, N, 8, F], Tensor grad(points))",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">, kit::GradientReads<"grad", "feats">,
    kit::GradientReads<"points", "feats">>;

}  // namespace cppcuda::ops::trilinear
