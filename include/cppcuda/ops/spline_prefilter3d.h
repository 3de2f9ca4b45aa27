#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <string_view>

namespace cppcuda {

// Computes the coefficients of the B-spline that has the values of a volume, as scipy.ndimage.spline_filter: with them,
// spline_sample3d (spline_sample3d.h) returns input[z, y, x] at the point (z, y, x).
//
// input   [D, H, W, F]  or a batch, [B, D, H, W, F]; float64, float32, float16 or bfloat16; any strides. D, H and W
// from
//                       1 to 2^30
// order                 0 to 5. Orders 0 and 1 copy the input
// border                "mirror", "reflect" or "grid-wrap", as in spline_sample3d. The coefficients are exact for all
//                       sizes. The other borders have no exact filter: pad by 12 values on each side, filter with
//                       "mirror", and add 12 to the points
// returns [D, H, W, F]  in the dtype of input, contiguous. Computed in float32, or in float64 for float64
//
// Linear in input, and differentiable any number of times, in reverse and forward mode: its gradient is its adjoint.
//
// The filter is that of M. Unser, A. Aldroubi and M. Eden, "B-spline signal processing", 1993.
//
// Throws c10::Error for other orders, borders, ranks, sizes, dtypes or layouts.
CPPCUDA_EXPORT at::Tensor spline_prefilter3d(const at::Tensor& input, int64_t order = 3,
                                             std::string_view border = "mirror");

}  // namespace cppcuda
