#include <torch/library.h>

#include <utility>

#include "core/launch.cuh"
#include "core/width.h"
#include "ops/trilinear/adapter.h"
#include "ops/trilinear/kernel.cuh"
#include "ops/trilinear/launch.h"
#include "ops/trilinear/row_kernel.cuh"
#include "ops/trilinear/schema.h"
#include "ops/trilinear/staged_kernel.cuh"

namespace cppcuda::ops::trilinear {
namespace {

// Whether all rows of `size` values are one piece of memory.
bool is_dense(const core::Rows& rows, const core::RowStride& stride, int64_t size) {
  return rows.per_batch.value() == rows.count && stride.row == size;
}

template <class T>
bool is_dense(const T* feats, const core::Rows& rows, const core::RowStride& stride, int64_t corner, int64_t feature,
              int64_t features) {
  return feature == 1 && corner == features && is_dense(rows, stride, 8 * features) && core::is_aligned16(feats, {});
}

// Calls f(std::integral_constant<int, features>), where a thread can take whole rows.
template <class T, class F>
void with_features(int64_t features, F f) {
  [&]<int... N>(std::integer_sequence<int, N...>) {
    const auto call = [&](auto n) {
      if constexpr (is_whole(n, sizeof(T))) {
        if (n == features) f(n);
      }
    };
    (call(std::integral_constant<int, N>{}), ...);
  }(WholeFeatures{});
}

Tensor forward_cuda(const Tensor& feats, const Tensor& points) {
  return forward(feats, points, [&]<class T, class P>(const ForwardParams<T, P>& p) {
    const bool packs = p.feats_feature == 1 &&
                       core::is_aligned16(p.feats, {p.feats_rows.batch, p.feats_rows.row, p.feats_corner}) &&
                       core::is_aligned16(p.out, {});
    const bool dense = is_dense(p.feats, p.rows, p.feats_rows, p.feats_corner, p.feats_feature, p.features) &&
                       core::is_aligned16(p.out, {});
    const RowLaunch launch = row_launch(p.rows.count, p.features, sizeof(T), packs, dense);
    switch (launch.access) {
      case Access::whole:
        return with_features<T>(
            p.features, [&](auto f) { core::launch(row_forward_kernel<f, T, P>, launch.shape, feats.device(), p); });
      case Access::staged:
        return core::with_width<staged_width(sizeof(T))>(launch.width > 1, [&](auto v) {
          core::launch(staged_forward_kernel<core::wide<T>, v, T, P>, launch.shape, feats.device(), p, launch.tile,
                       launch.lane_bits);
        });
      case Access::direct:
        return core::with_width<core::wide<T>>(launch.width > 1, [&](auto n) {
          core::launch(forward_kernel<n, T, P>, launch.shape, feats.device(), p, launch.lane_bits);
        });
    }
  });
}

std::tuple<Tensor, Tensor> backward_cuda(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                         c10::List<bool> output_mask) {
  return backward(grad, feats, points, output_mask, [&]<class T, class P>(const BackwardParams<T, P>& p) {
    // Calls f(FEATS, POINTS): which gradients are asked for.
    const auto with_gradients = [&](auto f) {
      if (!p.grad_points) return f(std::true_type(), std::false_type());
      p.grad_feats ? f(std::true_type(), std::true_type()) : f(std::false_type(), std::true_type());
    };
    const bool packs =
        p.grad_feature == 1 && core::is_aligned16(p.grad, {p.grad_rows.batch, p.grad_rows.row}) &&
        (!p.feats || (p.feats_feature == 1 &&
                      core::is_aligned16(p.feats, {p.feats_rows.batch, p.feats_rows.row, p.feats_corner}))) &&
        core::is_aligned16(p.grad_feats, {});
    const bool dense =
        p.grad_feature == 1 && is_dense(p.rows, p.grad_rows, p.features) && core::is_aligned16(p.grad, {}) &&
        core::is_aligned16(p.grad_feats, {}) &&
        (!p.feats || is_dense(p.feats, p.rows, p.feats_rows, p.feats_corner, p.feats_feature, p.features));
    const RowLaunch launch = row_launch(p.rows.count, p.features, sizeof(T), packs, dense);
    with_gradients([&](auto of_feats, auto of_points) {
      switch (launch.access) {
        case Access::whole:
          return with_features<T>(p.features, [&](auto f) {
            core::launch(row_backward_kernel<f, of_feats, of_points, T, P>, launch.shape, grad.device(), p);
          });
        case Access::staged:
          return core::with_width<staged_width(sizeof(T))>(launch.width > 1, [&](auto v) {
            const auto kernel = staged_backward_kernel<core::wide<T>, v, of_feats, of_points, T, P>;
            core::launch(kernel, launch.shape, grad.device(), p, launch.tile, launch.lane_bits);
          });
        case Access::direct:
          return core::with_width<core::wide<T>>(launch.width > 1, [&](auto n) {
            const auto kernel = backward_kernel<n, of_feats, of_points, T, P>;
            core::launch(kernel, launch.shape, grad.device(), p, launch.lane_bits);
          });
      }
    });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
