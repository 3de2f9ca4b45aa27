#include <ATen/Parallel.h>
#include <torch/library.h>

#include "core/opmath.h"
#include "ops/trilinear/adapter.h"
#include "ops/trilinear/math.h"
#include "ops/trilinear/schema.h"

namespace cppcuda::ops::trilinear {
namespace {

// Below this many elements of feats a second thread costs more than it saves.
constexpr int64_t elements_per_task = 1 << 15;

// f(begin, end) on ranges of rows.
template <class F>
void parallel_rows(int64_t rows, int64_t features, F f) {
  at::parallel_for(0, rows, std::max<int64_t>(1, elements_per_task / (8 * features)), f);
}

template <class Params>
auto voxel_at(const Params& p, int64_t row) {
  const auto* point = p.points + p.points_rows.offset(p.rows, row);
  using A = core::opmath<std::remove_cvref_t<decltype(*p.feats)>>;
  return Voxel<A>(point[0], point[p.points_coordinate], point[2 * p.points_coordinate]);
}

// Unit: features lie next to each other, which the compiler must know to use vectors.
template <bool Unit, class T, class P>
void forward_rows(const ForwardParams<T, P>& p, int64_t begin, int64_t end) {
  using A = core::opmath<T>;
  const int64_t step = Unit ? 1 : p.feats_feature;
  for (int64_t row = begin; row < end; ++row) {
    const auto voxel = voxel_at(p, row);
    A weight[8];
    for (int c = 0; c < 8; ++c) weight[c] = voxel.weight(c);
    const T* feats = p.feats + p.feats_rows.offset(p.rows, row);
    T* out = p.out + row * p.features;
    for (int64_t f = 0; f < p.features; ++f) {
      A sum = 0;
      for (int c = 0; c < 8; ++c) sum += weight[c] * static_cast<A>(feats[c * p.feats_corner + f * step]);
      out[f] = static_cast<T>(sum);
    }
  }
}

template <bool Unit, class T, class P>
void backward_rows(const BackwardParams<T, P>& p, int64_t begin, int64_t end) {
  using A = core::opmath<T>;
  const int64_t grad_step = Unit ? 1 : p.grad_feature, feats_step = Unit ? 1 : p.feats_feature;
  for (int64_t row = begin; row < end; ++row) {
    const auto voxel = voxel_at(p, row);
    const T* grad = p.grad + p.grad_rows.offset(p.rows, row);
    if (p.grad_feats) {
      for (int c = 0; c < 8; ++c) {
        const A weight = voxel.weight(c);
        T* out = p.grad_feats + (row * 8 + c) * p.features;
        for (int64_t f = 0; f < p.features; ++f) out[f] = static_cast<T>(weight * static_cast<A>(grad[f * grad_step]));
      }
    }
    if (p.grad_points) {
      A by_coordinate[3] = {};
      for (int c = 0; c < 8; ++c) {
        const T* feats = p.feats + p.feats_rows.offset(p.rows, row) + c * p.feats_corner;
        A dot = 0;
        for (int64_t f = 0; f < p.features; ++f) {
          dot += static_cast<A>(grad[f * grad_step]) * static_cast<A>(feats[f * feats_step]);
        }
        for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
      }
      for (int d = 0; d < 3; ++d) p.grad_points[row * 3 + d] = static_cast<P>(by_coordinate[d]);
    }
  }
}

Tensor forward_cpu(const Tensor& feats, const Tensor& points) {
  return forward(feats, points, [](const auto& p) {
    parallel_rows(p.rows.count, p.features, [&](int64_t begin, int64_t end) {
      p.feats_feature == 1 ? forward_rows<true>(p, begin, end) : forward_rows<false>(p, begin, end);
    });
  });
}

std::tuple<Tensor, Tensor> backward_cpu(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                        c10::List<bool> output_mask) {
  return backward(grad, feats, points, output_mask, [](const auto& p) {
    parallel_rows(p.rows.count, p.features, [&](int64_t begin, int64_t end) {
      p.grad_feature == 1 && p.feats_feature == 1 ? backward_rows<true>(p, begin, end)
                                                  : backward_rows<false>(p, begin, end);
    });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  m.impl(Forward::name, TORCH_FN(forward_cpu));
  m.impl(Backward::name, TORCH_FN(backward_cpu));
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
