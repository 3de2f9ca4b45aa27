#include <utility>

#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/cuda/width.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/trilinear/cuda/kernel.cuh"
#include "ops/trilinear/cuda/launch.h"
#include "ops/trilinear/cuda/staged_kernel.cuh"

namespace cppcuda::ops::trilinear {
namespace {

// Whether all rows of `size` values are one contiguous block.
bool is_dense(const kit::Rows& rows, const kit::RowStride& stride, int64_t size) {
  return rows.per_batch.value() == rows.count && stride.row == size;
}

template <class T>
bool is_dense(const T* feats, const kit::Rows& rows, const kit::RowStride& stride, int64_t corner, int64_t feature,
              int64_t features) {
  return feature == 1 && corner == features && is_dense(rows, stride, 8 * features) && kit::is_aligned16(feats, {});
}

// Calls f(F, V) with the template arguments of a staged kernel.
template <class T, class F>
void with_staged(int64_t features, int width, F f) {
  constexpr std::integral_constant<int, 0> any;
  constexpr std::integral_constant<int, 1> one;
  if (!is_whole(features, sizeof(T))) {
    return kit::with_width<staged_width(sizeof(T))>(width > 1, [&](auto v) { f(any, v); });
  }
  [&]<int... N>(std::integer_sequence<int, N...>) {
    const auto call = [&](auto n) {
      if constexpr (is_whole(n, sizeof(T))) {
        if (n == features) f(n, one);
      }
    };
    (call(std::integral_constant<int, N>{}), ...);
  }(WholeFeatures{});
}

template <class T, class P>
void forward(const ForwardParams<T, P>& p, kit::CudaStream& stream) {
  const bool packs = p.feats_feature == 1 &&
                     kit::is_aligned16(p.feats, {p.feats_rows.batch, p.feats_rows.row, p.feats_corner}) &&
                     kit::is_aligned16(p.out, {});
  const bool dense = is_dense(p.feats, p.rows, p.feats_rows, p.feats_corner, p.feats_feature, p.features) &&
                     kit::is_aligned16(p.out, {});
  const RowLaunch launch = row_launch(p.rows.count, p.features, sizeof(T), packs, dense, forward_direct_bytes);
  switch (launch.access) {
    case Access::staged:
      return with_staged<T>(p.features, launch.width, [&](auto f, auto v) {
        kit::launch(staged_forward_kernel<kit::pack_size<T>, f, v, T, P>, launch.shape, stream, p, launch.tile,
                    launch.lane_bits);
      });
    case Access::direct:
      return kit::with_width<kit::pack_size<T>>(launch.width > 1, [&](auto n) {
        kit::launch(forward_kernel<n, T, P>, launch.shape, stream, p, launch.lane_bits);
      });
  }
}

template <class T, class P>
void backward(const BackwardParams<T, P>& p, kit::CudaStream& stream) {
  // Calls f(FEATS, POINTS): which gradients are requested.
  const auto with_gradients = [&](auto f) {
    if (!p.grad_points) return f(std::true_type(), std::false_type());
    p.grad_feats ? f(std::true_type(), std::true_type()) : f(std::false_type(), std::true_type());
  };
  const bool packs =
      p.grad_feature == 1 && kit::is_aligned16(p.grad, {p.grad_rows.batch, p.grad_rows.row}) &&
      (!p.feats ||
       (p.feats_feature == 1 && kit::is_aligned16(p.feats, {p.feats_rows.batch, p.feats_rows.row, p.feats_corner}))) &&
      kit::is_aligned16(p.grad_feats, {});
  const bool dense = p.grad_feature == 1 && is_dense(p.rows, p.grad_rows, p.features) &&
                     kit::is_aligned16(p.grad, {}) && kit::is_aligned16(p.grad_feats, {}) &&
                     (!p.feats || is_dense(p.feats, p.rows, p.feats_rows, p.feats_corner, p.feats_feature, p.features));
  const RowLaunch launch = row_launch(p.rows.count, p.features, sizeof(T), packs, dense, backward_direct_bytes);
  with_gradients([&](auto of_feats, auto of_points) {
    switch (launch.access) {
      case Access::staged:
        return with_staged<T>(p.features, launch.width, [&](auto f, auto v) {
          kit::launch(staged_backward_kernel<kit::pack_size<T>, f, v, of_feats, of_points, T, P>, launch.shape, stream,
                      p, launch.tile, launch.lane_bits);
        });
      case Access::direct:
        return kit::with_width<kit::pack_size<T>>(launch.width > 1, [&](auto n) {
          kit::launch(backward_kernel<n, of_feats, of_points, T, P>, launch.shape, stream, p, launch.lane_bits);
        });
    }
  });
}

template <class T, class P>
void double_backward(const DoubleBackwardParams<T, P>& p, kit::CudaStream& stream) {
  const auto in_packs = [](const T* x, const RowStride& rows, int64_t corner, int64_t feature) {
    return !x || (feature == 1 && kit::is_aligned16(x, {rows.batch, rows.row, corner}));
  };
  const bool packs =
      p.features % kit::pack_size<T> == 0 && in_packs(p.grad, p.grad_rows, 0, p.grad_feature) &&
      in_packs(p.feats, p.feats_rows, p.feats_corner, p.feats_feature) &&
      in_packs(p.grad_grad_feats, p.grad_grad_feats_rows, p.grad_grad_feats_corner, p.grad_grad_feats_feature) &&
      kit::is_aligned16(p.grad_grad, {}) && kit::is_aligned16(p.grad_feats, {});
  kit::with_width<kit::pack_size<T>>(packs, [&](auto n) {
    const RowLaunch launch = direct_launch(p.rows.count, p.features, n);
    kit::launch(double_backward_kernel<n, T, P>, launch.shape, stream, p, launch.lane_bits);
  });
}

[[maybe_unused]] const bool added = kit::for_each_dtypes([]<class T, class P>() {
  kit::add_to_table(&forward<T, P>);
  kit::add_to_table(&backward<T, P>);
  kit::add_to_table(&double_backward<T, P>);
});

}  // namespace
}  // namespace cppcuda::ops::trilinear
