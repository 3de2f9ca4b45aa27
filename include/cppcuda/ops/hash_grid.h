#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <cstdint>
#include <string_view>

namespace cppcuda {

// The names and defaults of tiny-cuda-nn.
struct HashGridConfig {
  int64_t n_levels = 16;
  int64_t n_features_per_level = 2;
  int64_t log2_hashmap_size = 19;
  int64_t base_resolution = 16;
  double per_level_scale = 2;
  std::string_view interpolation = "Linear";
};

// Multi-resolution hash encoding (T. Mueller, A. Evans, C. Schied and A. Keller, "Instant neural graphics primitives
// with a multiresolution hash encoding", 2022), with the layout of tiny-cuda-nn.
//
// Level l has a grid with scale_l = 2^(l log2(per_level_scale)) base_resolution - 1 and ceil(scale_l) + 1 vertices per
// axis. With x = scale_l points[n] + 0.5 and t = x - floor(x),
//
//   out[n, l * C + c] = sum over the 2^D corners v of the cell at floor(x) of
//                       (product over the axes d of (v is on the far side ? s(t_d) : 1 - s(t_d))) * table_l[row(v), c]
//
// where s(t) is t for "Linear" and t^2 (3 - 2 t) for "Smoothstep", and table_l are the parameters of the level. The row
// is x + y R + z R^2 ... for a grid of R^D vertices that fit into 2^log2_hashmap_size rows; otherwise it is the
// exclusive or of the coordinates times 1, 2654435761, 805459861 and 3674653429; both in 32 bits, modulo the number of
// rows. So points outside [0, 1] wrap around.
//
// params   [P]            of dtype float64, float32, float16 or bfloat16; any stride. P is hash_grid_parameters(D,
// config) points   [N, D]         2 to 4 coordinates from 0 to 1; in the dtype of params, or float32 if params has 16
// bits returns  [N, L * C]     n_levels times n_features_per_level columns, in the dtype of params, contiguous
//
// One call can compute a batch: params [B, P] and points [B, N, D] -> [B, N, L * C]. N and B may be 0. Positions and
// sums are computed in float32, or in float64 for float64; scale_l always in float32, as tiny-cuda-nn does.
// Differentiable in params and points, any number of times, in reverse and forward mode. On the CPU results have the
// same bits on every run, for any number of threads. On CUDA the gradient of params is summed with atomics, in any
// order, unless torch's deterministic algorithms are enabled, which selects a sort.
//
// Throws c10::Error for other ranks, sizes, dtypes, layouts or configurations, or if the devices differ.
CPPCUDA_EXPORT at::Tensor hash_grid(const at::Tensor& params, const at::Tensor& points,
                                    const HashGridConfig& config = {});

// The number of parameters of a grid for points of 2 to 4 coordinates.
CPPCUDA_EXPORT int64_t hash_grid_parameters(int64_t n_input_dims, const HashGridConfig& config = {});

}  // namespace cppcuda
