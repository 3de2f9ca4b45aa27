#pragma once

#include "types.h"

namespace cppcuda::ops::trilinear_indexed {

using Forward = kit::Op<
    "cppcuda::trilinear_indexed(Tensor table[B?, V, F], Tensor corners[B?, N, 8] int32 or int64, "
    "Tensor points[B?, N, 3] keep_wide) -> Tensor[B?, N, F]",
    kit::Independent<"N", "F">>;

using Backward =
    kit::BackwardOf<Forward, kit::GradientReads<"table", "points">, kit::GradientReads<"points", "table", "points">>;

// The derivative of Backward, where a missing grad_grad_table is zeros. The weights are differentiated order[k] times
// by coordinate k.
using DoubleBackward = kit::BackwardOf<Backward, kit::GradientReads<"grad", "table", "points", "grad_grad_points">,
                                       kit::GradientReads<"table", "grad", "points", "grad_grad_points">,
                                       kit::GradientReads<"points", "grad", "table", "points", "grad_grad_points">,
                                       kit::FurtherArguments<"int[] order=[]">>;

// gradient[n, f, k] is the derivative of value[n, f] by points[n, k].
using WithGrad = kit::Op<
    "cppcuda::trilinear_indexed_with_grad(Tensor table[B?, V, F], Tensor corners[B?, N, 8] int32 or int64, "
    "Tensor points[B?, N, 3] keep_wide) -> (Tensor value[B?, N, F], Tensor gradient[B?, N, F, 3])",
    kit::Independent<"N", "F">>;

}  // namespace cppcuda::ops::trilinear_indexed
