#pragma once

#include "interpolation/declarations.h"

namespace cppcuda::ops::trilinear {

using Forward =
    kit::Op<"cppcuda::trilinear(Tensor feats[B?, N, 8, F], Tensor points[B?, N, 3] keep_wide) -> Tensor[B?, N, F]",
            kit::Independent<"N", "F">>;

using Backward = interpolation::Backward<Forward, "feats">;
using DoubleBackward = interpolation::DoubleBackward<Backward, "feats">;

}  // namespace cppcuda::ops::trilinear
