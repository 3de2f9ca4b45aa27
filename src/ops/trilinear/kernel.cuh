#pragma once

// `lanes` neighbouring threads share a row and step over its features, N at a time. The eight
// corners of a step are loaded before any of them is used, to keep as much as possible in flight:
// this op moves memory.

#include "core/opmath.h"
#include "core/pack.h"
#include "ops/trilinear/launch.h"
#include "ops/trilinear/math.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

template <int N, class T, class P>
__global__ void __launch_bounds__(core::threads_per_block, 2) forward_kernel(ForwardParams<T, P> p, int lanes) {
  using A = core::opmath<T>;
  const int lane = threadIdx.x % lanes;
  const int64_t rows_per_block = blockDim.x / lanes;
  for (int64_t row = blockIdx.x * rows_per_block + threadIdx.x / lanes; row < p.rows.count;
       row += gridDim.x * rows_per_block) {
    const P* point = p.points + p.points_rows.offset(p.rows, row);
    const Voxel<A> voxel(point[0], point[p.points_coordinate], point[2 * p.points_coordinate]);
    const T* feats = p.feats + p.feats_rows.offset(p.rows, row);
    for (int64_t f = int64_t{lane} * N; f < p.features; f += int64_t{lanes} * N) {
      core::Pack<T, N> corner[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) corner[c] = core::load_strided<N>(feats + c * p.feats_corner, f, p.feats_feature);
      core::Pack<T, N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        A sum = 0;
#pragma unroll
        for (int c = 0; c < 8; ++c) sum += voxel.weight(c) * static_cast<A>(corner[c].value[i]);
        out.value[i] = static_cast<T>(sum);
      }
      core::store(p.out + row * p.features + f, out);
    }
  }
}

// Both gradients in one pass over grad. The sum over features for grad_points is taken in a fixed
// order: per thread, then across the lanes of a row.
template <int N, bool FEATS, bool POINTS, class T, class P>
__global__ void __launch_bounds__(core::threads_per_block, 2) backward_kernel(BackwardParams<T, P> p, int lanes) {
  using A = core::opmath<T>;
  const int lane = threadIdx.x % lanes;
  const int64_t rows_per_block = blockDim.x / lanes;
  const unsigned row_lanes = (lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 - lane);
  for (int64_t row = blockIdx.x * rows_per_block + threadIdx.x / lanes; row < p.rows.count;
       row += gridDim.x * rows_per_block) {
    const P* point = p.points + p.points_rows.offset(p.rows, row);
    const Voxel<A> voxel(point[0], point[p.points_coordinate], point[2 * p.points_coordinate]);
    const T* grad_row = p.grad + p.grad_rows.offset(p.rows, row);
    const T* feats = POINTS ? p.feats + p.feats_rows.offset(p.rows, row) : nullptr;
    A by_coordinate[3] = {};
    for (int64_t f = int64_t{lane} * N; f < p.features; f += int64_t{lanes} * N) {
      const auto grad = core::load_strided<N>(grad_row, f, p.grad_feature);
      if constexpr (POINTS) {
        core::Pack<T, N> corner[8];
#pragma unroll
        for (int c = 0; c < 8; ++c) corner[c] = core::load_strided<N>(feats + c * p.feats_corner, f, p.feats_feature);
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          A dot = 0;
#pragma unroll
          for (int i = 0; i < N; ++i) dot += static_cast<A>(grad.value[i]) * static_cast<A>(corner[c].value[i]);
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
        }
      }
      if constexpr (FEATS) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          core::Pack<T, N> out;
#pragma unroll
          for (int i = 0; i < N; ++i) out.value[i] = static_cast<T>(voxel.weight(c) * static_cast<A>(grad.value[i]));
          core::store(p.grad_feats + (row * 8 + c) * p.features + f, out);
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

}  // namespace cppcuda::ops::trilinear
