#pragma once

#include "core/op.h"

namespace cppcuda::ops::trilinear {

using Forward = core::Op<"cppcuda::trilinear(Tensor feats[B?, N, 8, F], Tensor points[B?, N, 3]) -> Tensor[B?, N, F]",
                         core::MayBeWider<"points">>;

// feats may be missing when only its own gradient is asked for, which does not read it.
using Backward = core::Op<
    "cppcuda::_trilinear_backward(Tensor grad[B?, N, F], Tensor? feats[B?, N, 8, F], Tensor points[B?, N, 3], "
    "bool[2] output_mask) -> (Tensor grad(feats), Tensor grad(points))",
    core::MayBeWider<"points">, core::GradientReads<"points", "feats">>;

}  // namespace cppcuda::ops::trilinear
