#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <optional>
#include <string_view>

namespace cppcuda {

// Resizes images with bilinear interpolation, on the pixel grid of the framework that a network is deployed with.
//
//   out[n, c, oy, ox] = sum over the pixels (iy, ix) around (y, x) of
//                       (1 - |y - iy|) * (1 - |x - ix|) * input[n, c, iy, ix]
//
// where y is the position of row oy in the input, and x that of column ox. With s = H / OH:
//
//   "half_pixel"     y = (oy + 0.5) * s - 0.5           torch align_corners=False, TensorFlow 2, default of ONNX
//   "align_corners"  y = oy * (H - 1) / (OH - 1)        torch and TensorFlow 1.x align_corners=True
//   "asymmetric"     y = oy * s                         TensorFlow 1.x resize_bilinear and TFLite by default
//
// Positions are clamped to the image.
//
// input        [N, C, H, W]  float64, float32, float16 or bfloat16; any strides. H and W at least 1, N and C may be 0
// output_size  {OH, OW}      at least 1 each
// scale_h, scale_w           positive and finite. As in torch, 1 / scale replaces s if it is given, whatever the sizes.
//                            Ignored by "align_corners" and for an image whose size does not change, which is copied
// returns      [N, C, OH, OW]  in the dtype and the memory format (contiguous or channels_last) of input
//
// Positions and sums are computed in float32, or in float64 for float64. Differentiable any number of times, in reverse
// and forward mode. Gradients are gathered, so results have the same bits on every run.
//
// Throws c10::Error for anything else.
CPPCUDA_EXPORT at::Tensor upsample_bilinear2d(const at::Tensor& input, at::IntArrayRef output_size,
                                              std::string_view coordinate_transformation_mode = "half_pixel",
                                              std::optional<double> scale_h = std::nullopt,
                                              std::optional<double> scale_w = std::nullopt);

// The same for a string literal. Without this overload an unqualified call would select at::upsample_bilinear2d, which
// argument-dependent lookup finds, because a literal converts to its bool align_corners rather than to
// std::string_view.
inline at::Tensor upsample_bilinear2d(const at::Tensor& input, at::IntArrayRef output_size,
                                      const char* coordinate_transformation_mode,
                                      std::optional<double> scale_h = std::nullopt,
                                      std::optional<double> scale_w = std::nullopt) {
  return upsample_bilinear2d(input, output_size, std::string_view(coordinate_transformation_mode), scale_h, scale_w);
}

}  // namespace cppcuda
