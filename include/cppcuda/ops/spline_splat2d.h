#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <string_view>

namespace cppcuda {

// The adjoint of spline_sample2d: spline_splat3d (spline_splat3d.h) without the first axis.
//
// values  [N, F]     or a batch, [B, N, F]
// points  [N, 2]     coordinates (y, x), or a batch, [B, N, 2]
// size    H and W
// returns [H, W, F]  or a batch, [B, H, W, F]
CPPCUDA_EXPORT at::Tensor spline_splat2d(const at::Tensor& values, const at::Tensor& points, at::IntArrayRef size,
                                         int64_t order = 3, std::string_view border = "mirror");

}  // namespace cppcuda
