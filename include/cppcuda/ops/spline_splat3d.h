#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <string_view>

namespace cppcuda {

// The adjoint of spline_sample3d (spline_sample3d.h), and the gradient of its input: adds values[n] to the coefficients
// that points[n] depends on, times their weights.
//
//   out[iz, iy, ix, f] = sum over n of b(z - iz) * b(y - iy) * b(x - ix) * values[n, f]
//
// values  [N, F]        float64, float32, float16 or bfloat16; any strides
// points  [N, 3]        coordinates (z, y, x) in voxels. In the dtype of values, or float32 if values has 16 bits
// size    D, H and W    from 1 to 2^30
// returns [D, H, W, F]  in the dtype of values, contiguous
//
// A batch has one more dim in front of values, points and the result. Sums are computed in float32, or in float64 for
// float64, in the order of the points; on CUDA only under torch.use_deterministic_algorithms(True). Differentiable in
// values and points, any number of times, in reverse and forward mode.
//
// Throws c10::Error for other orders, borders, ranks, sizes, dtypes or layouts, or if the devices differ.
CPPCUDA_EXPORT at::Tensor spline_splat3d(const at::Tensor& values, const at::Tensor& points, at::IntArrayRef size,
                                         int64_t order = 3, std::string_view border = "mirror");

}  // namespace cppcuda
