#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

namespace cppcuda {

// Trilinear interpolation in voxels whose corners are rows of a shared table, as in a sparse voxel grid.
//
//   u, v, w = (points[n] + 1) / 2
//   out[n, f] = sum over i, j, k in {0, 1} of
//               (i ? u : 1 - u) * (j ? v : 1 - v) * (k ? w : 1 - w) * table[corners[n, 4i + 2j + k], f]
//
// table    [V, F]  the features of the vertices, float64, float32, float16 or bfloat16; any strides
// corners  [N, 8]  rows of the table, int32 or int64; any strides. -1 is a missing vertex, whose features are zeros
// points   [N, 3]  coordinates in [-1, 1] of a voxel; outside, the interpolant continues, linear in each coordinate.
//                  In the dtype of table, or float32 if table has 16 bits
// returns  [N, F]  in the dtype of table, contiguous
//
// One call can compute a batch: table [B, V, F], corners [B, N, 8] and points [B, N, 3] -> [B, N, F]. V, N, B and F may
// be 0. Sums are taken in float32 for 16-bit tables. Differentiable in table and points, any number of times, in
// reverse and forward mode. On the CPU results have the same bits on every run, for any number of threads. On CUDA the
// gradient of table is summed with atomics, in any order, unless torch's deterministic algorithms are enabled
// (at::globalContext().setDeterministicAlgorithms), which selects a sort.
//
// Throws c10::IndexError for a corner outside [-1, V), and c10::Error for other ranks, sizes, dtypes or layouts, or if
// the devices differ. On CUDA a corner outside [-1, V) fails a device assert instead.
CPPCUDA_EXPORT at::Tensor trilinear_indexed(const at::Tensor& table, const at::Tensor& corners,
                                            const at::Tensor& points);

}  // namespace cppcuda
