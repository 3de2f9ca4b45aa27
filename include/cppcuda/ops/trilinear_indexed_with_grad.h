#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <tuple>

namespace cppcuda {

// trilinear_indexed and its derivatives by the points, in one pass: what the normals of a distance field or an eikonal
// loss need.
//
//   value[n, f] = trilinear_indexed(table, corners, points)[n, f]
//   gradient[n, f, k] = d value[n, f] / d points[n, k]
//
// table    [V, F]                float64, float32, float16 or bfloat16; any strides
// corners  [N, 8]                rows of the table, int32 or int64; any strides. -1 is a missing vertex, with zeros
// points   [N, 3]                coordinates in [-1, 1] of a voxel, in the dtype of table, or float32 if table has 16
//                                bits
// returns  (value, gradient)     [N, F] and [N, F, 3], in the dtype of table, contiguous
//
// One call can compute a batch, with one more dim B in front of each tensor. V, N, B and F may be 0. Both outputs are
// differentiable in table and points, any number of times, in reverse and forward mode. On the CPU results have the
// same bits on every run; for CUDA, see trilinear_indexed.
//
// Throws c10::IndexError for a corner outside [-1, V), and c10::Error for other ranks, sizes, dtypes or layouts, or if
// the devices differ. On CUDA a corner outside [-1, V) fails a device assert instead.
CPPCUDA_EXPORT std::tuple<at::Tensor, at::Tensor> trilinear_indexed_with_grad(const at::Tensor& table,
                                                                              const at::Tensor& corners,
                                                                              const at::Tensor& points);

}  // namespace cppcuda
