#pragma once

#include <cppcuda/ops/hash_grid.h>

#include "interpolation/declarations.h"

namespace cppcuda::ops::hash_grid {

using Config = kit::Config<HashGridConfig, "n_levels", "interpolation">;

using Forward = kit::Op<
    "cppcuda::hash_grid(Tensor params[B?, P], Tensor points[B?, N, D] keep_wide, int n_levels[L]=16, "
    "int n_features_per_level[C]=2, int log2_hashmap_size=19, int base_resolution=16, float per_level_scale=2.0, "
    "str interpolation=\"Linear\") -> Tensor[B?, N, LC]",
    Config, kit::Independent<"N">>;

using Backward = interpolation::Backward<Forward, "params">;
using DoubleBackward = interpolation::DoubleBackward<Backward, "params", interpolation::DerivativeArgument>;

}  // namespace cppcuda::ops::hash_grid
