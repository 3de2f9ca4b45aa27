#pragma once

#include "interpolation/declarations.h"

namespace cppcuda::ops::trilinear_indexed {

using Forward = kit::Op<
    "cppcuda::trilinear_indexed(Tensor table[B?, V, F], Tensor corners[B?, N, 8] int32 or int64, "
    "Tensor points[B?, N, 3] keep_wide) -> Tensor[B?, N, F]",
    kit::Independent<"N", "F">>;

using Backward = interpolation::Backward<Forward, "table">;
using DoubleBackward = interpolation::DoubleBackward<Backward, "table", interpolation::DerivativeArgument>;

// gradient[n, f, k] is the derivative of value[n, f] by points[n, k].
using WithGrad = kit::Op<
    "cppcuda::trilinear_indexed_with_grad(Tensor table[B?, V, F], Tensor corners[B?, N, 8] int32 or int64, "
    "Tensor points[B?, N, 3] keep_wide) -> (Tensor value[B?, N, F], Tensor gradient[B?, N, F, 3])",
    kit::Independent<"N", "F">>;

}  // namespace cppcuda::ops::trilinear_indexed
