#pragma once

#include "interpolation/declarations.h"

namespace cppcuda::ops::grid_sample3d {

using Forward = kit::Op<
    "cppcuda::grid_sample3d(Tensor input[B?, D, H, W, F], Tensor points[B?, N, 3] keep_wide, "
    "str padding_mode=\"zeros\", bool align_corners=False) -> Tensor[B?, N, F]",
    kit::Independent<"N", "F">>;

using Backward = interpolation::Backward<Forward, "input">;
using DoubleBackward = interpolation::DoubleBackward<Backward, "input", interpolation::DerivativeArgument>;

}  // namespace cppcuda::ops::grid_sample3d
