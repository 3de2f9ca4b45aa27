#pragma once

#include <cppcuda/ops/hash_grid.h>

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::hash_grid {

using Config = kit::Config<HashGridConfig, "n_levels", "interpolation">;

using Forward = kit::Op<
    "cppcuda::hash_grid(Tensor params[B?, P], Tensor points[B?, N, D], int n_levels[L]=16, "
    "int n_features_per_level[C]=2, int log2_hashmap_size=19, int base_resolution=16, float per_level_scale=2.0, "
    "str interpolation=\"Linear\") -> Tensor[B?, N, LC]",
    Config, kit::MayBeWider<"points">, kit::Independent<"N">>;

// params may be missing if only its own gradient is requested, which does not read it.
using Backward = kit::Op<
    "cppcuda::_hash_grid_backward(Tensor grad[B?, N, LC], Tensor? params[B?, P], Tensor points[B?, N, D], "
    "SymInt[1] size[P], int n_levels[L], int n_features_per_level[C], int log2_hashmap_size, int base_resolution, "
    "float per_level_scale, str interpolation, bool[2] output_mask) -> (Tensor grad(params), Tensor grad(points))",
    Config, kit::MayBeWider<"points">, kit::Independent<"N">, kit::GradientReads<"points", "params">>;

// The derivative of Backward, where grad_grad_params and grad_grad_points are the gradients of its outputs. params may
// be missing if only its own gradient is requested, and a missing grad_grad_params is zeros. The weights are
// differentiated order[k] times by coordinate k.
using DoubleBackward = kit::Op<
    "cppcuda::_hash_grid_double_backward(Tensor grad[B?, N, LC], Tensor? params[B?, P], Tensor points[B?, N, D], "
    "Tensor? grad_grad_params[B?, P], Tensor grad_grad_points[B?, N, D] like points, SymInt[1] size[P], "
    "int n_levels[L], int n_features_per_level[C], int log2_hashmap_size, int base_resolution, "
    "float per_level_scale, str interpolation, bool[3] output_mask, int[] order=[]) -> "
    "(Tensor grad(grad), Tensor grad(params)[B?, P], Tensor grad(points))",
    Config, kit::MayBeWider<"points">, kit::Independent<"N">, kit::GradientReads<"grad", "params">,
    kit::GradientReads<"points", "params">>;

}  // namespace cppcuda::ops::hash_grid
