#pragma once

#include <cmath>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/shape.h"
#include "ops/upsample_bilinear2d/math.h"
#include "ops/upsample_bilinear2d/op.h"

namespace cppcuda::ops::upsample_bilinear2d {

inline std::optional<Mode> find_mode(std::string_view name) {
  if (name == "half_pixel") return Mode::half_pixel;
  if (name == "align_corners") return Mode::align_corners;
  if (name == "asymmetric") return Mode::asymmetric;
  return std::nullopt;
}

// Like Tensor::suggest_memory_format, except that sizes of 0 count as 1: an unbacked N or C may or may not be 0.
inline at::MemoryFormat memory_format_of(const Tensor& tensor) {
  const auto sizes = tensor.sym_sizes(), strides = tensor.sym_strides();
  c10::SymInt min_stride = 1;  // so that an expanded C is not channels_last
  for (const int64_t d : {1, 3, 2, 0}) {
    if (TORCH_GUARD_OR_FALSE(strides[d].sym_lt(min_stride))) return at::MemoryFormat::Contiguous;
    if (d == 0 && TORCH_GUARD_OR_FALSE(min_stride.sym_eq(strides[1]))) return at::MemoryFormat::Contiguous;
    min_stride = strides[d] * sizes[d].max(1);
  }
  return at::MemoryFormat::ChannelsLast;
}

// tensor [N, C, H, W] -> [N, C, *size], in the tensor's memory format
template <class TheOp>
kit::Output resized(const Tensor& tensor, c10::SymIntArrayRef size, std::string_view mode,
                    std::optional<double> scale_h, std::optional<double> scale_w) {
  const char* op = TheOp::base_name();
  const auto argument = TheOp::declaration.arguments[0].name, size_argument = TheOp::declaration.arguments[1].name;
  const kit::Checker check = kit::checked<TheOp>(tensor, size, mode, scale_h, scale_w);
  for (const int64_t d : {2, 3}) {
    TORCH_SYM_CHECK(tensor.sym_size(d).sym_ge(1), op, ": ", argument,
                    " must be [N, C, H, W] with H and W at least 1, got ", tensor.sym_sizes());
  }
  TORCH_CHECK(find_mode(mode), op,
              ": coordinate_transformation_mode must be 'half_pixel', 'align_corners' or 'asymmetric', got '", mode,
              "'");
  auto check_scale = [op](const char* name, std::optional<double> scale) {
    TORCH_CHECK(!scale || (*scale > 0 && std::isfinite(*scale)), op, ": ", name, " must be positive and finite, got ",
                *scale);
  };
  check_scale("scale_h", scale_h);
  check_scale("scale_w", scale_w);
  TORCH_CHECK(size.size() == 2, op, ": ", size_argument, " must have 2 entries, got ", size.size());
  for (const c10::SymInt& s : size) {
    TORCH_SYM_CHECK(s.sym_ge(1), op, ": ", size_argument, " must be at least 1 in each entry, got ", size);
  }
  auto sizes = check.sizes("[N, C, H, W]");
  sizes[2] = size[0];
  sizes[3] = size[1];
  return {sizes, tensor.options().memory_format(memory_format_of(tensor))};
}

// input [N, C, H, W] -> [N, C, *output_size]
inline kit::Output forward_shape(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
                                 std::optional<double> scale_h, std::optional<double> scale_w) {
  return resized<Forward>(input, output_size, mode, scale_h, scale_w);
}

// grad [N, C, *output_size] -> [N, C, *input_size]
inline kit::Output backward_shape(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                                  std::optional<double> scale_h, std::optional<double> scale_w) {
  return resized<Backward>(grad, input_size, mode, scale_h, scale_w);
}

}  // namespace cppcuda::ops::upsample_bilinear2d
