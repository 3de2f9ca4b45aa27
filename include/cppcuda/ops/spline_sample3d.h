#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <string_view>

namespace cppcuda {

// Samples a volume of B-spline coefficients at points, as scipy.ndimage.map_coordinates(prefilter=False).
//
//   out[n, f] = sum over (iz, iy, ix) of b(z - iz) * b(y - iy) * b(x - ix) * input[iz, iy, ix, f]
//
// where (z, y, x) is points[n], in voxels: 0 is the centre of the first coefficient along an axis, and S - 1 that of
// the last one. b is the B-spline of the order, 0 to 5: order 0 is the nearest coefficient, order 1 linear
// interpolation, and from order 2 on the sum is smoother than the coefficients, which
// spline_prefilter3d computes from a volume. Coefficients outside depend on the border:
//
//   "mirror"         those inside, mirrored at the centres of the first and the last one: d c b | a b c d | c b a
//   "reflect"        those inside, mirrored at their outer borders:                       c b a | a b c d | d c b
//   "grid-wrap"      periodic:                                                            b c d | a b c d | a b c
//   "nearest"        the first or the last one:                                           a a a | a b c d | d d d
//   "grid-constant"  0
//
// input   [D, H, W, F]  float64, float32, float16 or bfloat16; any strides. D, H and W from 1 to 2^30
// points  [N, 3]        in the order of the axes of input, not in that of F.grid_sample. In the dtype of
//                       input, or float32 if input has 16 bits
// returns [N, F]        in the dtype of input, contiguous. NaN where a coordinate is NaN or, if the border
//                       repeats the coefficients, infinite
//
// One call can compute a batch: input [B, D, H, W, F] and points [B, N, 3] -> [B, N, F]. N, B and F may be 0.
// Weights and sums are computed in float32, or in float64 for float64. Differentiable in input and points, any number
// of times, in reverse and forward mode. Derivative number `order` jumps at the knots of the spline; there it is the
// one of the side of the greater coordinates.
//
// Results have the same bits on every run and for any number of threads. On CUDA, this holds for the gradient of input
// only under torch.use_deterministic_algorithms(True); without it, the gradient is a sum of float atomics.
//
// Throws c10::Error for other orders, borders, ranks, sizes, dtypes or layouts, or if the devices differ.
CPPCUDA_EXPORT at::Tensor spline_sample3d(const at::Tensor& input, const at::Tensor& points, int64_t order = 3,
                                          std::string_view border = "mirror");

}  // namespace cppcuda
