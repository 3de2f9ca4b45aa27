#pragma once

// Two ways through memory. Rows of many features: `lanes` neighbouring threads share a row and step over its features, N
// at a time. Rows that are too short or too odd for that (tile_rows in launch.h): a block takes a tile of rows, one piece
// of memory, through shared memory.

#include "core/opmath.h"
#include "core/pack.cuh"
#include "core/shared_memory.cuh"
#include "ops/trilinear/launch.h"
#include "ops/trilinear/math.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

template <class A, class P>
__device__ Voxel<A> voxel_at(const P* point, int64_t step) {
  return Voxel<A>(point[0], point[step], point[2 * step]);
}

// All eight before any of them is used, to have as much as possible in flight.
template <int N, class T>
__device__ void load_corners(core::Pack<T, N> (&corner)[8], const T* feats, int64_t corner_step, int64_t f,
                             int64_t feature_step) {
#pragma unroll
  for (int c = 0; c < 8; ++c) corner[c] = core::load_strided<N>(feats + c * corner_step, f, feature_step);
}

template <int N, class T, class P>
__global__ void __launch_bounds__(core::threads_per_block, 2) forward_kernel(ForwardParams<T, P> p, int lanes) {
  using A = core::opmath<T>;
  const int lane = threadIdx.x % lanes;
  const int64_t rows_per_block = blockDim.x / lanes;
  for (int64_t row = blockIdx.x * rows_per_block + threadIdx.x / lanes; row < p.rows.count;
       row += gridDim.x * rows_per_block) {
    const T* feats = p.feats + p.feats_rows.offset(p.rows, row);
    const P* point = p.points + p.points_rows.offset(p.rows, row);
    for (int64_t f = int64_t{lane} * N; f < p.features; f += int64_t{lanes} * N) {
      core::Pack<T, N> corner[8];
      load_corners(corner, feats, p.feats_corner, f, p.feats_feature);
      // In each step, so that the corners of the first do not wait for it.
      const auto voxel = voxel_at<A>(point, p.points_coordinate);
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
__global__ void __launch_bounds__(core::threads_per_block, POINTS ? 2 : 3)
    backward_kernel(BackwardParams<T, P> p, int lanes) {
  using A = core::opmath<T>;
  const int lane = threadIdx.x % lanes;
  const int64_t rows_per_block = blockDim.x / lanes;
  const unsigned row_lanes = (lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 - lane);
  for (int64_t row = blockIdx.x * rows_per_block + threadIdx.x / lanes; row < p.rows.count;
       row += gridDim.x * rows_per_block) {
    const T* grad_row = p.grad + p.grad_rows.offset(p.rows, row);
    const T* feats = POINTS ? p.feats + p.feats_rows.offset(p.rows, row) : nullptr;
    const P* point = p.points + p.points_rows.offset(p.rows, row);
    A by_coordinate[3] = {};
    for (int64_t f = int64_t{lane} * N; f < p.features; f += int64_t{lanes} * N) {
      const auto grad = core::load_strided<N>(grad_row, f, p.grad_feature);
      core::Pack<T, N> corner[8];
      if constexpr (POINTS) load_corners(corner, feats, p.feats_corner, f, p.feats_feature);
      const auto voxel = voxel_at<A>(point, p.points_coordinate);
      if constexpr (POINTS) {
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

// A tile's rows of feats in shared memory, each with one chunk of N values, 16 bytes, after it.
template <int N, class T>
struct Tile {
  unsigned features, row_chunks;

  __device__ explicit Tile(int64_t features)
      : features(static_cast<unsigned>(features)), row_chunks(features * sizeof(T) / 2) {}

  __device__ unsigned row_step() const { return (row_chunks + 1) * N; }  // in elements

  __device__ void load(T* to, const T* from, unsigned rows) const {
    constexpr int U = 4;  // chunks that a thread has in flight
    const unsigned chunks = rows * row_chunks;
    for (unsigned first = threadIdx.x; first < chunks; first += U * blockDim.x) {
      core::Pack<T, N> pack[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const unsigned i = first + u * blockDim.x;
        if (i < chunks) pack[u] = core::load_once<N>(from + int64_t{i} * N);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const unsigned i = first + u * blockDim.x;
        if (i < chunks) reinterpret_cast<core::Pack<T, N>*>(to)[i + i / row_chunks] = pack[u];
      }
    }
  }
};

template <int N, class T, class P>
__global__ void __launch_bounds__(core::threads_per_block, 4)
    staged_forward_kernel(ForwardParams<T, P> p, int tile_rows) {
  using A = core::opmath<T>;
  T* feats = core::shared_memory<T>();
  const Tile<N, T> tile(p.features);
  for (int64_t first = int64_t{blockIdx.x} * tile_rows; first < p.rows.count; first += int64_t{gridDim.x} * tile_rows) {
    const unsigned rows = static_cast<unsigned>(min(int64_t{tile_rows}, p.rows.count - first));
    tile.load(feats, p.feats + first * 8 * p.features, rows);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < rows * tile.features; i += blockDim.x) {
      const unsigned r = i / tile.features, f = i % tile.features;
      const auto voxel = voxel_at<A>(p.points + p.points_rows.offset(p.rows, first + r), p.points_coordinate);
      const T* row = feats + r * tile.row_step() + f;
      A sum = 0;
#pragma unroll
      for (int c = 0; c < 8; ++c) sum += voxel.weight(c) * static_cast<A>(row[c * tile.features]);
      p.out[first * p.features + i] = static_cast<T>(sum);
    }
    __syncthreads();
  }
}

// The sum for grad_points in a fixed order: over the features of a corner by one thread, then over the corners.
template <int N, bool FEATS, bool POINTS, class T, class P>
__global__ void __launch_bounds__(core::threads_per_block, 4)
    staged_backward_kernel(BackwardParams<T, P> p, int tile_rows) {
  using A = core::opmath<T>;
  const Tile<N, T> tile(p.features);
  T* feats = core::shared_memory<T>();
  T* grad = feats + tile_rows * tile.row_step();
  for (int64_t first = int64_t{blockIdx.x} * tile_rows; first < p.rows.count; first += int64_t{gridDim.x} * tile_rows) {
    const unsigned rows = static_cast<unsigned>(min(int64_t{tile_rows}, p.rows.count - first));
    const auto voxel_of = [&](unsigned r) {
      return voxel_at<A>(p.points + p.points_rows.offset(p.rows, first + r), p.points_coordinate);
    };
    if constexpr (POINTS) tile.load(feats, p.feats + first * 8 * p.features, rows);
    for (unsigned i = threadIdx.x; i < rows * tile.features; i += blockDim.x) {
      grad[i] = p.grad[first * p.features + i];
    }
    __syncthreads();
    if constexpr (FEATS) {
      T* target = p.grad_feats + first * 8 * p.features;
      for (unsigned i = threadIdx.x; i < rows * tile.row_chunks; i += blockDim.x) {
        const unsigned r = i / tile.row_chunks, begin = i % tile.row_chunks * N;
        const auto voxel = voxel_of(r);
        unsigned c = begin / tile.features, f = begin % tile.features;
        core::Pack<T, N> out;
#pragma unroll
        for (int e = 0; e < N; ++e) {
          out.value[e] = static_cast<T>(voxel.weight(c) * static_cast<A>(grad[r * tile.features + f]));
          if (++f == tile.features) f = 0, ++c;
        }
        core::store(target + int64_t{i} * N, out);
      }
    }
    if constexpr (POINTS) {
      // Eight threads per row, one per corner; all of a warp take part in the sums.
      for (unsigned begin = 0; begin < rows; begin += blockDim.x / 8) {
        const unsigned r = begin + threadIdx.x / 8, c = threadIdx.x % 8;
        A by_coordinate[3] = {};
        if (r < rows) {
          const T* corner = feats + r * tile.row_step() + c * tile.features;
          A dot = 0;
          for (unsigned f = 0; f < tile.features; ++f) {
            dot += static_cast<A>(grad[r * tile.features + f]) * static_cast<A>(corner[f]);
          }
          const auto voxel = voxel_of(r);
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] = voxel.slope(c, d) * dot;
        }
        for (int offset = 4; offset > 0; offset /= 2) {
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] += __shfl_xor_sync(~0u, by_coordinate[d], offset);
        }
        if (r < rows && c < 3) {
          p.grad_points[(first + r) * 3 + c] = static_cast<P>(c == 0   ? by_coordinate[0]
                                                              : c == 1 ? by_coordinate[1]
                                                                       : by_coordinate[2]);
        }
      }
    }
    __syncthreads();
  }
}

}  // namespace cppcuda::ops::trilinear
