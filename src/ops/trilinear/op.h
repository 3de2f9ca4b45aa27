#pragma once

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::trilinear {

using Forward = kit::Op<"cppcuda::trilinear(Tensor feats[B?, N, 8, F], Tensor points[B?, N, 3]) -> Tensor[B?, N, F]",
                        kit::MayBeWider<"points">>;

// feats may be missing if only the gradient of feats is requested, which does not read it.
using Backward = kit::Op<
    "cppcuda::_trilinear_backward(Tensor grad[B?, N, F], Tensor? feats[B?, N, 8, F], Tensor points[B?, N, 3], "
    "bool[2] output_mask) -> (Tensor grad(feats), Tensor grad(points))",
    kit::MayBeWider<"points">, kit::GradientReads<"points", "feats">>;

}  // namespace cppcuda::ops::trilinear
