// Converts tensors to the kernels' Params.

#include "interpolation/dispatch.h"

#include <torch/library.h>

#include "cppcuda/kit/output.h"
#include "ops/grid_sample3d/op.h"
#include "ops/grid_sample3d/shape.h"

namespace cppcuda::ops::grid_sample3d {
namespace {

using interpolation::requested;

// size is [D, H, W].
template <class Op, class Size>
Lookup lookup(const Size& size, std::string_view padding_mode, bool align_corners) {
  return {.size = {size[2], size[1], size[0]},
          .padding = find_padding(Op::base_name(), padding_mode),
          .align_corners = align_corners};
}

// [B?, D, H, W, F] as [B?, V, F]: a view if the strides permit it, as those of dense memory formats do.
Tensor as_table(const Tensor& volume) { return volume.defined() ? volume.flatten(-4, -2) : volume; }

Tensor forward(const Tensor& input, const Tensor& points, std::string_view padding_mode, bool align_corners) {
  Tensor out = kit::allocate(forward_shape(input, points, padding_mode, align_corners));
  const auto size = input.sizes().slice(input.dim() - 4, 3);
  interpolation::run_forward(lookup<Forward>(size, padding_mode, align_corners), as_table(input), points, out);
  return out;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad, const OptionalTensor& input, const Tensor& points,
                                    c10::SymIntArrayRef size, std::string_view padding_mode, bool align_corners,
                                    c10::List<bool> output_mask) {
  auto [grad_input, grad_points] =
      kit::allocate(backward_shape(grad, input, points, size, padding_mode, align_corners, output_mask));
  interpolation::run_backward(lookup<Backward>(C10_AS_INTARRAYREF_SLOW(size), padding_mode, align_corners), grad,
                              as_table(kit::tensor_or_undefined(input)), points,
                              as_table(requested(grad_input, output_mask[0])), requested(grad_points, output_mask[1]));
  return {grad_input, grad_points};
}

std::tuple<Tensor, Tensor, Tensor> double_backward(const Tensor& grad, const OptionalTensor& input,
                                                   const Tensor& points, const OptionalTensor& grad_grad_input,
                                                   const Tensor& grad_grad_points, c10::SymIntArrayRef size,
                                                   std::string_view padding_mode, bool align_corners,
                                                   c10::List<bool> output_mask, at::IntArrayRef order) {
  auto [grad_grad, grad_input, grad_points] = kit::allocate(double_backward_shape(
      grad, input, points, grad_grad_input, grad_grad_points, size, padding_mode, align_corners, output_mask, order));
  interpolation::run_double_backward(
      lookup<DoubleBackward>(C10_AS_INTARRAYREF_SLOW(size), padding_mode, align_corners), grad,
      as_table(kit::tensor_or_undefined(input)), points, as_table(kit::tensor_or_undefined(grad_grad_input)),
      grad_grad_points, interpolation::order_of(DoubleBackward::base_name(), order, points),
      requested(grad_grad, output_mask[0]), as_table(requested(grad_input, output_mask[1])),
      requested(grad_points, output_mask[2]));
  return {grad_grad, grad_input, grad_points};
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<Backward, backward>(m);
  kit::implement<DoubleBackward, double_backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::grid_sample3d
