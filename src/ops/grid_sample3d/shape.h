#pragma once

#include "cppcuda/kit/shape.h"
#include "ops/grid_sample3d/lookup.h"
#include "ops/grid_sample3d/op.h"

namespace cppcuda::ops::grid_sample3d {

inline Padding find_padding(const char* op, std::string_view name) {
  if (name == "zeros") return Padding::zeros;
  if (name == "border") return Padding::border;
  TORCH_CHECK(name == "reflection", op, ": padding_mode must be 'zeros', 'border' or 'reflection', got '", name, "'");
  return Padding::reflection;
}

// The outputs that follow from the declaration, after a check of what it does not say. `size` is [D, H, W].
template <class TheOp>
auto checked_outputs(c10::SymIntArrayRef size, std::string_view argument, c10::SymIntArrayRef sizes,
                     std::string_view padding_mode, const auto&... args) {
  auto outputs = kit::Shape<TheOp>::outputs(args...);
  const char* op = TheOp::base_name();
  find_padding(op, padding_mode);
  for (const c10::SymInt& s : size) {
    TORCH_SYM_CHECK(s.sym_ge(1), op, ": ", argument, " must have D, H and W of at least 1, got ", sizes);
    TORCH_SYM_CHECK(s.sym_le(Lookup::max_size), op, ": ", argument, " must have D, H and W of at most ",
                    Lookup::max_size, ", got ", sizes);
  }
  return outputs;
}

inline kit::Output forward_shape(const Tensor& input, const Tensor& points, std::string_view padding_mode,
                                 bool align_corners) {
  kit::checked<Forward>(input, points, padding_mode, align_corners);
  const auto sizes = input.sym_sizes();
  return checked_outputs<Forward>(sizes.slice(sizes.size() - 4, 3), "input", sizes, padding_mode, input, points,
                                  padding_mode, align_corners);
}

inline auto backward_shape(const Tensor& grad, const OptionalTensor& input, const Tensor& points,
                           c10::SymIntArrayRef size, std::string_view padding_mode, bool align_corners,
                           c10::List<bool> output_mask) {
  return checked_outputs<Backward>(size, "size", size, padding_mode, grad, input, points, size, padding_mode,
                                   align_corners, output_mask);
}

inline auto double_backward_shape(const Tensor& grad, const OptionalTensor& input, const Tensor& points,
                                  const OptionalTensor& grad_grad_input, const Tensor& grad_grad_points,
                                  c10::SymIntArrayRef size, std::string_view padding_mode, bool align_corners,
                                  c10::List<bool> output_mask, at::IntArrayRef order) {
  return checked_outputs<DoubleBackward>(size, "size", size, padding_mode, grad, input, points, grad_grad_input,
                                         grad_grad_points, size, padding_mode, align_corners, output_mask, order);
}

}  // namespace cppcuda::ops::grid_sample3d
