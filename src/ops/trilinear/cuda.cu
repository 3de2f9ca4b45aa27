#include <torch/library.h>

#include "core/launch.cuh"
#include "ops/trilinear/adapter.h"
#include "ops/trilinear/kernel.cuh"
#include "ops/trilinear/launch.h"
#include "ops/trilinear/schema.h"

namespace cppcuda::ops::trilinear {
namespace {

Tensor forward_cuda(const Tensor& feats, const Tensor& points) {
  return forward(feats, points, [&]<class T, class P>(const ForwardParams<T, P>& p) {
    const bool wide_allowed = p.features % core::wide<T> == 0 && p.feats_feature == 1 &&
                              core::is_aligned16(p.feats, {p.feats_rows.batch, p.feats_rows.row, p.feats_corner}) &&
                              core::is_aligned16(p.out, {});
    core::with_width<core::wide<T>>(wide_allowed, [&](auto n) {
      const RowLaunch launch = row_launch(p.rows.count, p.features / n);
      core::launch(forward_kernel<n, T, P>, launch.shape, feats.device(), p, launch.lanes);
    });
  });
}

std::tuple<Tensor, Tensor> backward_cuda(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                         c10::List<bool> output_mask) {
  return backward(grad, feats, points, output_mask, [&]<class T, class P>(const BackwardParams<T, P>& p) {
    const bool wide_allowed =
        p.features % core::wide<T> == 0 && p.grad_feature == 1 &&
        core::is_aligned16(p.grad, {p.grad_rows.batch, p.grad_rows.row}) &&
        (!p.feats || (p.feats_feature == 1 &&
                      core::is_aligned16(p.feats, {p.feats_rows.batch, p.feats_rows.row, p.feats_corner}))) &&
        core::is_aligned16(p.grad_feats, {});
    core::with_width<core::wide<T>>(wide_allowed, [&](auto n) {
      const auto kernel = !p.grad_points  ? backward_kernel<n, true, false, T, P>
                          : !p.grad_feats ? backward_kernel<n, false, true, T, P>
                                          : backward_kernel<n, true, true, T, P>;
      const RowLaunch launch = row_launch(p.rows.count, p.features / n);
      core::launch(kernel, launch.shape, grad.device(), p, launch.lanes);
    });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
