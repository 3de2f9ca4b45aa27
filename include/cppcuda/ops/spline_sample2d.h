#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <string_view>

namespace cppcuda {

// Samples an image of B-spline coefficients at points: spline_sample3d (spline_sample3d.h) without the first axis.
//
// input   [H, W, F]  or a batch, [B, H, W, F]
// points  [N, 2]     coordinates (y, x), or a batch, [B, N, 2]
// returns [N, F]     or a batch, [B, N, F]
CPPCUDA_EXPORT at::Tensor spline_sample2d(const at::Tensor& input, const at::Tensor& points, int64_t order = 3,
                                          std::string_view border = "mirror");

}  // namespace cppcuda
