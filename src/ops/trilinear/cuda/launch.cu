#include <utility>

#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/cuda/width.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/trilinear/cuda/kernel.cuh"
#include "ops/trilinear/cuda/launch.h"
#include "ops/trilinear/cuda/staged_kernel.cuh"

namespace cppcuda::ops::trilinear {
namespace {

// Whether all rows, [features] or [8, features], are one contiguous block that starts on a 16-byte boundary.
template <class T>
bool is_dense(const Rows& rows, const RowsOf<T>& operand, int64_t features) {
  const int64_t size = operand.outer == 0 ? features : 8 * features;
  return !operand.data || (rows.per_batch.value() == rows.count && operand.row == size && operand.inner == 1 &&
                           (operand.outer == 0 || operand.outer == features) && kit::is_aligned16(operand.data, {}));
}

// Whether the features of all rows and corners start on 16-byte boundaries.
template <class T>
bool in_packs(const RowsOf<T>& operand) {
  return !operand.data ||
         (operand.inner == 1 && kit::is_aligned16(operand.data, {operand.batch, operand.row, operand.outer}));
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
  const bool packs = in_packs(p.feats) && kit::is_aligned16(p.out, {});
  const bool dense = is_dense(p.rows, p.feats, p.features) && kit::is_aligned16(p.out, {});
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
  const bool packs = in_packs(p.grad) && in_packs(p.feats) && kit::is_aligned16(p.grad_feats, {});
  const bool dense = is_dense(p.rows, p.grad, p.features) && is_dense(p.rows, p.feats, p.features) &&
                     kit::is_aligned16(p.grad_feats, {});
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
  const bool packs = p.features % kit::pack_size<T> == 0 && in_packs(p.grad) && in_packs(p.feats) &&
                     in_packs(p.grad_grad_feats) && kit::is_aligned16(p.grad_grad, {}) &&
                     kit::is_aligned16(p.grad_feats, {});
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
