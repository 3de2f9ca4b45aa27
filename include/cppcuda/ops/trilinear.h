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
// points  [N, 3]     coordinates in [-1, 1]; outside, the interpolant continues, linear in each of them.
//                    The dtype of feats, or float32 beside 16-bit feats
// returns [N, F]     in the dtype of feats, contiguous
//
// A batch of such problems, feats [B, N, 8, F] and points [B, N, 3] -> [B, N, F], is one call too.
// N, B and F may be 0. Sums are taken in float32 for 16-bit feats. Differentiable in feats and
// points, any number of times, in reverse and forward mode; the same bits on every run.
//
// Throws c10::Error for anything else: other ranks, sizes, dtypes, layouts, or devices that differ.
//
// Other corner orders need no option: swapping two axes of the corners is swapping two columns of
// points.
CPPCUDA_EXPORT at::Tensor trilinear(const at::Tensor& feats, const at::Tensor& points);

}  // namespace cppcuda
