#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <string_view>

namespace cppcuda {

// Computes the coefficients of the B-spline that has the values of an image, [H, W, F] or a batch, [B, H, W, F]:
// spline_prefilter3d (spline_prefilter3d.h) without the first axis.
CPPCUDA_EXPORT at::Tensor spline_prefilter2d(const at::Tensor& input, int64_t order = 3,
                                             std::string_view border = "mirror");

}  // namespace cppcuda
