// The declarations of row_norm, from which schemas, checks of arguments, Meta, vmap, autocast and DTensor follow.
// Change: the arguments and outputs, each tensor with its sizes, and the dims that are independent of each other.
// python/my_ops/samples/row_norm.py lists the files that are still the template's.
#pragma once

#include "cppcuda/kit/op.h"

namespace my_ops::ops::row_norm {

namespace kit = cppcuda::kit;
using at::Tensor;

// rstd = 1 / sqrt(mean(input^2) + eps) is the statistic that backward reads, in float32 if input has 16 bits. The
// operator does not return it; the internal operator _row_norm, Forward::WithHidden, does.
using Forward = kit::Op<
    "my_ops::row_norm(Tensor input[B?, N, F], float eps) -> "
    "(Tensor output[B?, N, F], hidden Tensor rstd[B?, N] opmath)",
    kit::Independent<"N">>;
using ForwardWithRstd = Forward::WithHidden;

// my_ops::_row_norm_backward(Tensor grad[B?, N, F], Tensor rstd[B?, N] opmath, Tensor input[B?, N, F]) ->
// Tensor grad(input), where rstd is an argument like any other, with a gradient.
using Backward = kit::BackwardOf<Forward, kit::GradientReads<"input", "input", "rstd">, kit::Without<"eps">>;

}  // namespace my_ops::ops::row_norm
