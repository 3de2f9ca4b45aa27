#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <string_view>

namespace cppcuda {

// Samples a volume of feature vectors at points, by trilinear interpolation, with the conventions of F.grid_sample.
//
//   out[n, f] = sum over the voxels (iz, iy, ix) around (z, y, x) of
//               (1 - |z - iz|) * (1 - |y - iy|) * (1 - |x - ix|) * input[iz, iy, ix, f]
//
// where x, y and z are the positions of points[n] along W, H and D. With p for a coordinate and S for the size:
//
//   align_corners = false  x = ((p + 1) * S - 1) / 2    -1 and 1 are the outer faces of the first and the last voxel
//   align_corners = true   x = (p + 1) / 2 * (S - 1)    -1 and 1 are their centres
//
// and positions outside depend on padding_mode:
//
//   "zeros"       voxels outside are 0
//   "border"      positions are clamped to 0 to S - 1
//   "reflection"  positions are reflected at -1 and 1 until they are inside, and then clamped
//
// input   [D, H, W, F]  float64, float32, float16 or bfloat16; any strides. D, H and W from 1 to 2^30.
//                       A volume [B, F, D, H, W] of the memory format channels_last_3d needs no copy: pass
//                       volume.permute({0, 2, 3, 4, 1})
// points  [N, 3]        coordinates (x, y, z): x along W, y along H, z along D. In the dtype of input, or float32 if
//                       input has 16 bits
// returns [N, F]        in the dtype of input, contiguous
//
// One call can compute a batch: input [B, D, H, W, F] and points [B, N, 3] -> [B, N, F]. N, B and F may be 0. Positions
// and sums are computed in float32, or in float64 for float64. Differentiable in input and points, any number of times,
// in reverse and forward mode. Where the slope jumps (at the centres of voxels, and where padding begins), the gradient
// of points is that of F.grid_sample.
//
// Results have the same bits on every run and for any number of threads. On CUDA, this holds for the gradient of input
// only under torch.use_deterministic_algorithms(True); without it, the gradient is a sum of float atomics.
//
// Throws c10::Error for other modes, ranks, sizes, dtypes or layouts, or if the devices differ.
CPPCUDA_EXPORT at::Tensor grid_sample3d(const at::Tensor& input, const at::Tensor& points,
                                        std::string_view padding_mode = "zeros", bool align_corners = false);

}  // namespace cppcuda
