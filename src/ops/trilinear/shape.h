#pragma once

#include "core/check.h"
#include "core/output.h"

namespace cppcuda::ops::trilinear {

// feats [B?, N, 8, F], points [B?, N, 3] -> [B?, N, F]
inline core::Output forward_shape(const Tensor& feats, const Tensor& points) {
  core::Checker check("trilinear");
  check.floating("feats", feats);
  check.floating("points", points);
  check.same_or_wider_dtype("points", points, "feats", feats);
  check.same_device("points", points, "feats", feats);
  check.shape("feats", feats, "[B?, N, 8, F]");
  check.shape("points", points, "[B?, N, 3]");
  return {check.sizes("[B?, N, F]"), feats.options()};
}

// grad [B?, N, F] -> gradients of feats and points
inline std::array<core::Output, 2> backward_shape(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                                  const c10::List<bool>& output_mask) {
  core::Checker check("_trilinear_backward");
  const auto [need_feats, need_points] = check.mask<2>("output_mask", output_mask);
  check.floating("grad", grad);
  check.floating("points", points);
  check.same_or_wider_dtype("points", points, "grad", grad);
  check.same_device("points", points, "grad", grad);
  check.shape("grad", grad, "[B?, N, F]");
  if (need_points) check.required("feats", feats, "when the gradient of points is asked for");
  if (feats) {
    check.floating("feats", *feats);
    check.same_dtype("feats", *feats, "grad", grad);
    check.same_device("feats", *feats, "grad", grad);
    check.shape("feats", *feats, "[B?, N, 8, F]");
  }
  check.shape("points", points, "[B?, N, 3]");
  return {need_feats ? core::Output{check.sizes("[B?, N, 8, F]"), grad.options()} : core::left_out(grad),
          need_points ? core::Output{check.sizes("[B?, N, 3]"), points.options()} : core::left_out(points)};
}

}  // namespace cppcuda::ops::trilinear
