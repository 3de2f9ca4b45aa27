#pragma once

// Two ways through memory. Rows of many features: `lanes` neighbouring threads share a row and step over its features, N
// at a time. Rows that are too short or too odd for that (Tile in launch.h): a block takes a tile of rows, one piece of
// memory, through shared memory.

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
__global__ void __launch_bounds__(core::threads_per_block, 2) forward_kernel(ForwardParams<T, P> p, int lane_bits) {
  using A = core::opmath<T>;
  const int lanes = 1 << lane_bits, lane = threadIdx.x & (lanes - 1);
  const int64_t rows_per_block = blockDim.x >> lane_bits;
  for (int64_t row = blockIdx.x * rows_per_block + (threadIdx.x >> lane_bits); row < p.rows.count;
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
        for (int c = 0; c < 8; ++c) sum += voxel.weight(c) * core::widen<A>(corner[c], i);
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
    backward_kernel(BackwardParams<T, P> p, int lane_bits) {
  using A = core::opmath<T>;
  const int lanes = 1 << lane_bits, lane = threadIdx.x & (lanes - 1);
  const int64_t rows_per_block = blockDim.x >> lane_bits;
  const unsigned row_lanes = (lanes == 32 ? ~0u : (1u << lanes) - 1) << (threadIdx.x % 32 - lane);
  for (int64_t row = blockIdx.x * rows_per_block + (threadIdx.x >> lane_bits); row < p.rows.count;
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
          for (int i = 0; i < N; ++i) dot += core::widen<A>(grad, i) * core::widen<A>(corner[c], i);
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
        }
      }
      if constexpr (FEATS) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          core::Pack<T, N> out;
#pragma unroll
          for (int i = 0; i < N; ++i) out.value[i] = static_cast<T>(voxel.weight(c) * core::widen<A>(grad, i));
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

// A tile in shared memory, N values to a chunk of 16 bytes. A thread computes V values of a row, which lie next to each
// other, of all of whose corners it is the only one to read and write.
template <int N, int V, class T>
struct StagedTile {
  Tile tile;
  T* values;
  unsigned features, row_step;  // elements

  __device__ StagedTile(const Tile& tile, int64_t features)
      : tile(tile),
        values(core::shared_memory<T>()),
        features(static_cast<unsigned>(features)),
        row_step(static_cast<unsigned>(chunk_step(tile.row_chunks.value())) * N) {}

  __device__ T* end() const { return values + tile.rows * row_step; }

  __device__ unsigned threads(unsigned rows) const { return rows * static_cast<unsigned>(tile.row_threads.value()); }

  // Where number i of the threads of all rows works.
  struct Place {
    unsigned row;
    T* corner;  // the first; the others are `features` apart
  };

  __device__ Place operator[](unsigned i) const {
    const unsigned row = tile.row_threads.quotient(i);
    return {row, values + row * row_step + (i - row * static_cast<unsigned>(tile.row_threads.value())) * V};
  }

  __device__ core::Pack<T, N>& chunk(unsigned i) const {
    const unsigned row = tile.row_chunks.quotient(i);
    return reinterpret_cast<core::Pack<T, N>*>(values + row * (row_step - 8 * features))[i];
  }

  __device__ void load(const T* from, unsigned rows) const {
    constexpr int U = 4, step = core::threads_per_block;  // U chunks of a thread are in flight
    const unsigned chunks = rows * static_cast<unsigned>(tile.row_chunks.value());
    from += threadIdx.x * N;
    for (unsigned i = threadIdx.x; i < chunks; i += U * step, from += U * step * N) {
      core::Pack<T, N> pack[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (i + u * step < chunks) pack[u] = core::load_once<N>(from + u * step * N);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (i + u * step < chunks) chunk(i + u * step) = pack[u];
      }
    }
  }

  __device__ void store(T* to, unsigned rows) const {
    constexpr int step = core::threads_per_block;
    const unsigned chunks = rows * static_cast<unsigned>(tile.row_chunks.value());
    to += threadIdx.x * N;
    for (unsigned i = threadIdx.x; i < chunks; i += step, to += step * N) core::store(to, chunk(i));
  }
};

template <int N, int V, class T, class P>
__global__ void __launch_bounds__(core::threads_per_block, 4) staged_forward_kernel(ForwardParams<T, P> p, Tile tile) {
  using A = core::opmath<T>;
  constexpr int step = core::threads_per_block;
  const StagedTile<N, V, T> feats(tile, p.features);
  for (int64_t first = int64_t{blockIdx.x} * tile.rows; first < p.rows.count; first += int64_t{gridDim.x} * tile.rows) {
    const unsigned rows = static_cast<unsigned>(min(int64_t{tile.rows}, p.rows.count - first));
    feats.load(p.feats + first * 8 * p.features, rows);
    __syncthreads();
    const P* points = p.points + first * p.points_rows.row;
    T* target = p.out + first * p.features + threadIdx.x * V;
    for (unsigned i = threadIdx.x; i < feats.threads(rows); i += step, target += step * V) {
      const auto at = feats[i];
      const auto voxel = voxel_at<A>(points + at.row * p.points_rows.row, p.points_coordinate);
      A sum[V] = {};
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const auto corner = core::load<V>(at.corner + c * feats.features);
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += voxel.weight(c) * core::widen<A>(corner, v);
      }
      core::Pack<T, V> out;
#pragma unroll
      for (int v = 0; v < V; ++v) out.value[v] = static_cast<T>(sum[v]);
      core::store(target, out);
    }
    __syncthreads();
  }
}

// A thread puts its part of grad_feats where it read feats. The sum for grad_points in a fixed order: by each thread over
// the corners, then over the threads of a row by eight lanes.
template <int N, int V, bool FEATS, bool POINTS, class T, class P>
__global__ void __launch_bounds__(core::threads_per_block, 4)
    staged_backward_kernel(BackwardParams<T, P> p, Tile tile) {
  using A = core::opmath<T>;
  constexpr int step = core::threads_per_block;
  const StagedTile<N, V, T> feats(tile, p.features);
  A* by_thread = reinterpret_cast<A*>(feats.end());  // [3, threads of a tile]
  const unsigned all = feats.threads(tile.rows), row_threads = static_cast<unsigned>(tile.row_threads.value());
  for (int64_t first = int64_t{blockIdx.x} * tile.rows; first < p.rows.count; first += int64_t{gridDim.x} * tile.rows) {
    const unsigned rows = static_cast<unsigned>(min(int64_t{tile.rows}, p.rows.count - first));
    if constexpr (POINTS) {
      feats.load(p.feats + first * 8 * p.features, rows);
      __syncthreads();
    }
    const P* points = p.points + first * p.points_rows.row;
    const T* from = p.grad + first * p.features + threadIdx.x * V;
    for (unsigned i = threadIdx.x; i < feats.threads(rows); i += step, from += step * V) {
      const auto at = feats[i];
      A grad[V];  // value by value: its rows may start anywhere
#pragma unroll
      for (int v = 0; v < V; ++v) grad[v] = static_cast<A>(from[v]);
      const auto voxel = voxel_at<A>(points + at.row * p.points_rows.row, p.points_coordinate);
      A by_coordinate[3] = {};
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        T* corner = at.corner + c * feats.features;
        if constexpr (POINTS) {
          const auto value = core::load<V>(corner);
          A dot = 0;
#pragma unroll
          for (int v = 0; v < V; ++v) dot += grad[v] * core::widen<A>(value, v);
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
        }
        if constexpr (FEATS) {
          core::Pack<T, V> out;
#pragma unroll
          for (int v = 0; v < V; ++v) out.value[v] = static_cast<T>(voxel.weight(c) * grad[v]);
          *reinterpret_cast<core::Pack<T, V>*>(corner) = out;
        }
      }
      if constexpr (POINTS) {
#pragma unroll
        for (int d = 0; d < 3; ++d) by_thread[d * all + i] = by_coordinate[d];
      }
    }
    __syncthreads();
    if constexpr (FEATS) feats.store(p.grad_feats + first * 8 * p.features, rows);
    if constexpr (POINTS) {
      // All of a warp take part in the sums.
      for (unsigned begin = 0; begin < rows; begin += step / 8) {
        const unsigned row = begin + threadIdx.x / 8, lane = threadIdx.x % 8;
        A sum[3] = {};
        if (row < rows) {
          for (unsigned i = lane; i < row_threads; i += 8) {
#pragma unroll
            for (int d = 0; d < 3; ++d) sum[d] += by_thread[d * all + row * row_threads + i];
          }
        }
        for (int offset = 4; offset > 0; offset /= 2) {
#pragma unroll
          for (int d = 0; d < 3; ++d) sum[d] += __shfl_xor_sync(~0u, sum[d], offset);
        }
        if (row < rows && lane < 3) {
          p.grad_points[(first + row) * 3 + lane] = static_cast<P>(lane == 0 ? sum[0] : lane == 1 ? sum[1] : sum[2]);
        }
      }
    }
    __syncthreads();
  }
}

}  // namespace cppcuda::ops::trilinear
