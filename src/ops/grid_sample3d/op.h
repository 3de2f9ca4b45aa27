#pragma once

#include "types.h"

namespace cppcuda::ops::grid_sample3d {

using Forward = kit::Op<
    "cppcuda::grid_sample3d(Tensor input[B?, D, H, W, F], Tensor points[B?, N, 3] keep_wide, str "
    "padding_mode=\"zeros\", "
    "bool align_corners=False) -> Tensor[B?, N, F]",
    kit::Independent<"N", "F">>;

using Backward =
    kit::BackwardOf<Forward, kit::GradientReads<"input", "points">, kit::GradientReads<"points", "input", "points">>;

// The derivative of Backward, where a missing grad_grad_input is zeros. The weights are differentiated order[k] times
// by coordinate k.
using DoubleBackward = kit::BackwardOf<Backward, kit::GradientReads<"grad", "input", "points", "grad_grad_points">,
                                       kit::GradientReads<"input", "grad", "points", "grad_grad_points">,
                                       kit::GradientReads<"points", "grad", "input", "points", "grad_grad_points">,
                                       kit::FurtherArguments<"int[] order=[]">>;

}  // namespace cppcuda::ops::grid_sample3d
