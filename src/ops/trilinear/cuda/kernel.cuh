#pragma once

// Neighbouring threads share a row and step over its features, N at a time. These kernels take any strides, and are
// fast for long rows; short and odd rows have a kernel of their own (staged_kernel.cuh).

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/trilinear/math.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

template <class A, class P>
__device__ Voxel<A> voxel_at(const P* point, int64_t step) {
  return Voxel<A>(point[0], point[step], point[2 * step]);
}

// Loads all eight corners before any of them is used, to have as many loads as possible in flight.
template <int N, class T>
__device__ void load_corners(kit::Pack<T, N> (&corner)[8], const T* feats, int64_t corner_step, int64_t f,
                             int64_t feature_step) {
#pragma unroll
  for (int c = 0; c < 8; ++c) corner[c] = kit::load_strided<N>(feats + c * corner_step, f, feature_step);
}

template <int N, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, 4) forward_kernel(ForwardParams<T, P> p, int lane_bits) {
  using A = kit::opmath<T>;
  const int lanes = 1 << lane_bits, lane = threadIdx.x & (lanes - 1);
  const int64_t rows_per_block = blockDim.x >> lane_bits;
  for (int64_t row = blockIdx.x * rows_per_block + (threadIdx.x >> lane_bits); row < p.rows.count;
       row += gridDim.x * rows_per_block) {
    const T* feats = p.feats.at(p.rows, row);
    const P* point = p.points.at(p.rows, row);
    for (int64_t f = int64_t{lane} * N; f < p.features; f += int64_t{lanes} * N) {
      kit::Pack<T, N> corner[8];
      load_corners(corner, feats, p.feats.outer, f, p.feats.inner);
      // Computed in each step, so that the loads of the first step do not wait for it.
      const auto voxel = voxel_at<A>(point, p.points.inner);
      kit::Pack<T, N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        A sum = 0;
#pragma unroll
        for (int c = 0; c < 8; ++c) sum += voxel.weight(c) * kit::widen<A>(corner[c], i);
        out.value[i] = static_cast<T>(sum);
      }
      kit::store(p.out + row * p.features + f, out);
    }
  }
}

// Computes both gradients in one pass over grad. The sum over features for grad_points is taken in a fixed order: per
// thread, then across the lanes of a row.
template <int N, bool FEATS, bool POINTS, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, POINTS ? 4 : 6)
    backward_kernel(BackwardParams<T, P> p, int lane_bits) {
  using A = kit::opmath<T>;
  const int lanes = 1 << lane_bits, lane = threadIdx.x & (lanes - 1);
  const int64_t rows_per_block = blockDim.x >> lane_bits;
  const unsigned row_lanes = (lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 - lane);
  for (int64_t row = blockIdx.x * rows_per_block + (threadIdx.x >> lane_bits); row < p.rows.count;
       row += gridDim.x * rows_per_block) {
    const T* grad_row = p.grad.at(p.rows, row);
    const T* feats = POINTS ? p.feats.at(p.rows, row) : nullptr;
    const P* point = p.points.at(p.rows, row);
    A by_coordinate[3] = {};
    for (int64_t f = int64_t{lane} * N; f < p.features; f += int64_t{lanes} * N) {
      const auto grad = kit::load_strided<N>(grad_row, f, p.grad.inner);
      kit::Pack<T, N> corner[8];
      if constexpr (POINTS) load_corners(corner, feats, p.feats.outer, f, p.feats.inner);
      const auto voxel = voxel_at<A>(point, p.points.inner);
      if constexpr (POINTS) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          A dot = 0;
#pragma unroll
          for (int i = 0; i < N; ++i) dot += kit::widen<A>(grad, i) * kit::widen<A>(corner[c], i);
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
        }
      }
      if constexpr (FEATS) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          kit::Pack<T, N> out;
#pragma unroll
          for (int i = 0; i < N; ++i) out.value[i] = static_cast<T>(voxel.weight(c) * kit::widen<A>(grad, i));
          kit::store(p.grad_feats + (row * 8 + c) * p.features + f, out);
        }
      }
    }
    if constexpr (POINTS) {
      for (int offset = lanes / 2; offset > 0; offset /= 2) {
#pragma unroll
        for (int d = 0; d < 3; ++d) by_coordinate[d] += __shfl_xor_sync(row_lanes, by_coordinate[d], offset);
      }
      if (lane == 0) {
#pragma unroll
        for (int d = 0; d < 3; ++d) p.grad_points[row * 3 + d] = static_cast<P>(by_coordinate[d]);
      }
    }
  }
}

// Computes the gradients that are requested in one pass over grad, feats and grad_grad_feats.
template <int N, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, sizeof(T) < 8 ? 4 : 2)
    double_backward_kernel(DoubleBackwardParams<T, P> p, int lane_bits) {
  using A = kit::opmath<T>;
  const int lanes = 1 << lane_bits, lane = threadIdx.x & (lanes - 1);
  const int64_t rows_per_block = blockDim.x >> lane_bits;
  const unsigned row_lanes = (lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 - lane);
  for (int64_t row = blockIdx.x * rows_per_block + (threadIdx.x >> lane_bits); row < p.rows.count;
       row += gridDim.x * rows_per_block) {
    const T* grad_row = p.grad.at(p.rows, row);
    const P* point = p.points.at(p.rows, row);
    const P* from = p.grad_grad_points.at(p.rows, row);
    const auto voxel = voxel_at<A>(point, p.points.inner);
    const A direction[3] = {static_cast<A>(from[0]), static_cast<A>(from[p.grad_grad_points.inner]),
                            static_cast<A>(from[2 * p.grad_grad_points.inner])};
    A by_coordinate[3] = {};
    for (int64_t f = int64_t{lane} * N; f < p.features; f += int64_t{lanes} * N) {
      const auto grad = kit::load_strided<N>(grad_row, f, p.grad.inner);
      A sum[N] = {};
      // Adds the corners' features times `weight`, and their dot products with grad times `slope`.
      const auto add = [&](const T* feats, int64_t corner_step, int64_t feature_step, auto weight, auto slope) {
        kit::Pack<T, N> corner[8];
        load_corners(corner, feats, corner_step, f, feature_step);
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          A dot = 0;
#pragma unroll
          for (int i = 0; i < N; ++i) {
            const A x = kit::widen<A>(corner[c], i);
            sum[i] += weight(c) * x;
            dot += kit::widen<A>(grad, i) * x;
          }
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] += slope(c, d) * dot;
        }
      };
      if (p.feats.data) {
        add(
            p.feats.at(p.rows, row), p.feats.outer, p.feats.inner,
            [&](int c) { return voxel.weight_along(c, direction); },
            [&](int c, int d) { return voxel.slope_along(c, d, direction); });
      }
      if (p.grad_grad_feats.data) {
        add(
            p.grad_grad_feats.at(p.rows, row), p.grad_grad_feats.outer, p.grad_grad_feats.inner,
            [&](int c) { return voxel.weight(c); }, [&](int c, int d) { return voxel.slope(c, d); });
      }
      if (p.grad_grad) {
        kit::Pack<T, N> out;
#pragma unroll
        for (int i = 0; i < N; ++i) out.value[i] = static_cast<T>(sum[i]);
        kit::store(p.grad_grad + row * p.features + f, out);
      }
      if (p.grad_feats) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          const A weight = voxel.weight_along(c, direction);
          kit::Pack<T, N> out;
#pragma unroll
          for (int i = 0; i < N; ++i) out.value[i] = static_cast<T>(weight * kit::widen<A>(grad, i));
          kit::store(p.grad_feats + (row * 8 + c) * p.features + f, out);
        }
      }
    }
    if (!p.grad_points) continue;
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
#pragma unroll
      for (int d = 0; d < 3; ++d) by_coordinate[d] += __shfl_xor_sync(row_lanes, by_coordinate[d], offset);
    }
    if (lane == 0) {
#pragma unroll
      for (int d = 0; d < 3; ++d) p.grad_points[row * 3 + d] = static_cast<P>(by_coordinate[d]);
    }
  }
}

}  // namespace cppcuda::ops::trilinear
