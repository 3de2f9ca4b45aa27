#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

namespace cppcuda {

// Trilinear interpolation of the eight corner features of a voxel, at one point per voxel.
//
//   u, v, w = (points[n] + 1) / 2
//   out[n, f] = sum over i, j, k in {0, 1} of
//               (i ? u : 1 - u) * (j ? v : 1 - v) * (k ? w : 1 - w) * feats[n, 4i + 2j + k, f]
//
// feats   [N, 8, F]  float64, float32, float16 or bfloat16; any strides
// points  [N, 3]     coordinates in [-1, 1]; outside, the interpolant continues, linear in each coordinate.
//                    In the dtype of feats, or float32 if feats have 16 bits
// returns [N, F]     in the dtype of feats, contiguous
//
// One call can compute a batch: feats [B, N, 8, F] and points [B, N, 3] -> [B, N, F]. N, B and F may be 0. Sums are
// taken in float32 for 16-bit feats. Differentiable in feats and points, any number of times, in reverse and forward
// mode. Results have the same bits on every run.
//
// Throws c10::Error for other ranks, sizes, dtypes or layouts, or if the devices differ.
//
// Other corner orders need no option: swap two columns of points to swap two axes of the corners.
CPPCUDA_EXPORT at::Tensor trilinear(const at::Tensor& feats, const at::Tensor& points);

}  // namespace cppcuda
