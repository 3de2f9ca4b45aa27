// Converts tensors to the kernels' Params.

#include <torch/library.h>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/row_strides.h"
#include "cppcuda/kit/shape.h"
#include "ops/trilinear/op.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {
namespace {

using kit::make_rows;
using kit::row_stride;

Tensor forward(const Tensor& feats, const Tensor& points) {
  Tensor out = kit::allocate(kit::Shape<Forward>::outputs(feats, points));
  if (out.numel() == 0) return out;
  const auto feats_rows = row_stride(feats, 2), points_rows = row_stride(points, 1);
  auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(feats.device(), ForwardParams<T, P>{.feats = feats.const_data_ptr<T>(),
                                                 .points = points.const_data_ptr<P>(),
                                                 .out = out.mutable_data_ptr<T>(),
                                                 .rows = make_rows(points, 1, feats_rows, points_rows),
                                                 .features = feats.size(-1),
                                                 .feats_rows = feats_rows,
                                                 .points_rows = points_rows,
                                                 .feats_corner = feats.stride(-2),
                                                 .feats_feature = feats.stride(-1),
                                                 .points_coordinate = points.stride(-1)});
  };
  kit::visit_dtypes(feats.scalar_type(), points.scalar_type(), call);
  return out;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                    c10::List<bool> output_mask) {
  auto [grad_feats, grad_points] = kit::allocate(kit::Shape<Backward>::outputs(grad, feats, points, output_mask));
  const bool need_feats = output_mask[0], need_points = output_mask[1];
  // The gradient of feats does not read feats.
  const Tensor x = need_points ? kit::tensor_or_undefined(feats) : Tensor();
  if (grad.numel() == 0) {
    if (need_points) grad_points.zero_();  // an empty sum
    return {grad_feats, grad_points};
  }
  const auto grad_rows = row_stride(grad, 1), points_rows = row_stride(points, 1);
  // Without feats, any evenly spaced strides serve.
  const auto feats_rows = need_points ? row_stride(x, 2) : RowStride{points.size(-2), 1};
  auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(grad.device(),
             BackwardParams<T, P>{.grad = grad.const_data_ptr<T>(),
                                  .feats = need_points ? x.const_data_ptr<T>() : nullptr,
                                  .points = points.const_data_ptr<P>(),
                                  .grad_feats = need_feats ? grad_feats.mutable_data_ptr<T>() : nullptr,
                                  .grad_points = need_points ? grad_points.mutable_data_ptr<P>() : nullptr,
                                  .rows = make_rows(points, 1, grad_rows, feats_rows, points_rows),
                                  .features = grad.size(-1),
                                  .grad_rows = grad_rows,
                                  .feats_rows = feats_rows,
                                  .points_rows = points_rows,
                                  .grad_feature = grad.stride(-1),
                                  .feats_corner = need_points ? x.stride(-2) : 0,
                                  .feats_feature = need_points ? x.stride(-1) : 1,
                                  .points_coordinate = points.stride(-1)});
  };
  if (need_feats || need_points) {
    kit::visit_dtypes(grad.scalar_type(), points.scalar_type(), call);
  }
  return {grad_feats, grad_points};
}

std::tuple<Tensor, Tensor, Tensor> double_backward(const Tensor& grad, const OptionalTensor& feats,
                                                   const Tensor& points, const OptionalTensor& grad_grad_feats,
                                                   const Tensor& grad_grad_points, c10::List<bool> output_mask) {
  auto [grad_grad, grad_feats, grad_points] = kit::allocate(
      kit::Shape<DoubleBackward>::outputs(grad, feats, points, grad_grad_feats, grad_grad_points, output_mask));
  const bool need_grad = output_mask[0], need_feats = output_mask[1], need_points = output_mask[2];
  if (grad.numel() == 0) {
    if (need_points) grad_points.zero_();  // an empty sum
    return {grad_grad, grad_feats, grad_points};
  }
  const Tensor x = need_grad || need_points ? *feats : Tensor();
  const Tensor u = need_grad || need_points ? kit::tensor_or_undefined(grad_grad_feats) : Tensor();
  const auto grad_rows = row_stride(grad, 1), points_rows = row_stride(points, 1),
             directions_rows = row_stride(grad_grad_points, 1);
  // Without a tensor, any evenly spaced strides serve.
  const RowStride none{points.size(-2), 1};
  const auto feats_rows = x.defined() ? row_stride(x, 2) : none, u_rows = u.defined() ? row_stride(u, 2) : none;
  auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(grad.device(),
             DoubleBackwardParams<T, P>{
                 .grad = grad.const_data_ptr<T>(),
                 .feats = x.defined() ? x.const_data_ptr<T>() : nullptr,
                 .points = points.const_data_ptr<P>(),
                 .grad_grad_feats = u.defined() ? u.const_data_ptr<T>() : nullptr,
                 .grad_grad_points = grad_grad_points.const_data_ptr<P>(),
                 .grad_grad = need_grad ? grad_grad.mutable_data_ptr<T>() : nullptr,
                 .grad_feats = need_feats ? grad_feats.mutable_data_ptr<T>() : nullptr,
                 .grad_points = need_points ? grad_points.mutable_data_ptr<P>() : nullptr,
                 .rows = make_rows(points, 1, grad_rows, feats_rows, points_rows, u_rows, directions_rows),
                 .features = grad.size(-1),
                 .grad_rows = grad_rows,
                 .feats_rows = feats_rows,
                 .points_rows = points_rows,
                 .grad_grad_feats_rows = u_rows,
                 .grad_grad_points_rows = directions_rows,
                 .grad_feature = grad.stride(-1),
                 .feats_corner = x.defined() ? x.stride(-2) : 0,
                 .feats_feature = x.defined() ? x.stride(-1) : 1,
                 .points_coordinate = points.stride(-1),
                 .grad_grad_feats_corner = u.defined() ? u.stride(-2) : 0,
                 .grad_grad_feats_feature = u.defined() ? u.stride(-1) : 1,
                 .grad_grad_points_coordinate = grad_grad_points.stride(-1)});
  };
  if (need_grad || need_feats || need_points) kit::visit_dtypes(grad.scalar_type(), points.scalar_type(), call);
  return {grad_grad, grad_feats, grad_points};
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<Backward, backward>(m);
  kit::implement<DoubleBackward, double_backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
