#pragma once

#include <cppcuda/ops/hash_grid.h>

#include "types.h"

namespace cppcuda::ops::hash_grid {

using Config = kit::Config<HashGridConfig, "n_levels", "interpolation">;

using Forward = kit::Op<
    "cppcuda::hash_grid(Tensor params[B?, P], Tensor points[B?, N, D] keep_wide, int n_levels[L]=16, "
    "int n_features_per_level[C]=2, int log2_hashmap_size=19, int base_resolution=16, float per_level_scale=2.0, "
    "str interpolation=\"Linear\") -> Tensor[B?, N, LC]",
    Config, kit::Independent<"N">>;

using Backward =
    kit::BackwardOf<Forward, kit::GradientReads<"params", "points">, kit::GradientReads<"points", "params", "points">>;

// The derivative of Backward, where a missing grad_grad_params is zeros. The weights are differentiated order[k] times
// by coordinate k.
using DoubleBackward = kit::BackwardOf<Backward, kit::GradientReads<"grad", "params", "points", "grad_grad_points">,
                                       kit::GradientReads<"params", "grad", "points", "grad_grad_points">,
                                       kit::GradientReads<"points", "grad", "params", "points", "grad_grad_points">,
                                       kit::FurtherArguments<"int[] order=[]">>;

}  // namespace cppcuda::ops::hash_grid
