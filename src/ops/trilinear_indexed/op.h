#pragma once

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::trilinear_indexed {

using Forward = kit::Op<
    "cppcuda::trilinear_indexed(Tensor table[B?, V, F], Tensor corners[B?, N, 8] int32 or int64, "
    "Tensor points[B?, N, 3]) -> Tensor[B?, N, F]",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">>;

// table may be missing if only its own gradient is requested, which does not read it.
using Backward = kit::Op<
    "cppcuda::_trilinear_indexed_backward(Tensor grad[B?, N, F], Tensor? table[B?, V, F], "
    "Tensor corners[B?, N, 8] int32 or int64, Tensor points[B?, N, 3], SymInt[1] size[V], "
    "bool[2] output_mask) -> (Tensor grad(table), Tensor grad(points))",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">, kit::GradientReads<"points", "table">>;

// The derivative of Backward, where grad_grad_table and grad_grad_points are the gradients of its outputs. table may be
// missing if only its own gradient is requested, and a missing grad_grad_table is zeros. The weights are differentiated
// order[k] times by coordinate k.
using DoubleBackward = kit::Op<
    "cppcuda::_trilinear_indexed_double_backward(Tensor grad[B?, N, F], Tensor? table[B?, V, F], "
    "Tensor corners[B?, N, 8] int32 or int64, Tensor points[B?, N, 3], Tensor? grad_grad_table[B?, V, F], "
    "Tensor grad_grad_points[B?, N, 3] like points, SymInt[1] size[V], bool[3] output_mask, "
    "int[] order=[]) -> "
    "(Tensor grad(grad), Tensor grad(table)[B?, V, F], Tensor grad(points))",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">, kit::GradientReads<"grad", "table">,
    kit::GradientReads<"points", "table">>;

// gradient[n, f, k] is the derivative of value[n, f] by points[n, k].
using WithGrad = kit::Op<
    "cppcuda::trilinear_indexed_with_grad(Tensor table[B?, V, F], Tensor corners[B?, N, 8] int32 or int64, "
    "Tensor points[B?, N, 3]) -> (Tensor value[B?, N, F], Tensor gradient[B?, N, F, 3])",
    kit::MayBeWider<"points">, kit::Independent<"N", "F">>;

}  // namespace cppcuda::ops::trilinear_indexed
