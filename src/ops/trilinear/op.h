#pragma once

#include "types.h"

namespace cppcuda::ops::trilinear {

using Forward =
    kit::Op<"cppcuda::trilinear(Tensor feats[B?, N, 8, F], Tensor points[B?, N, 3] keep_wide) -> Tensor[B?, N, F]",
            kit::Independent<"N", "F">>;

using Backward =
    kit::BackwardOf<Forward, kit::GradientReads<"feats", "points">, kit::GradientReads<"points", "feats", "points">>;

// The derivative of Backward, where a missing grad_grad_feats is zeros.
using DoubleBackward = kit::BackwardOf<Backward, kit::GradientReads<"grad", "feats", "points", "grad_grad_points">,
                                       kit::GradientReads<"feats", "grad", "points", "grad_grad_points">,
                                       kit::GradientReads<"points", "grad", "feats", "points", "grad_grad_points">>;

}  // namespace cppcuda::ops::trilinear
