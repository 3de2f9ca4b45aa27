#pragma once

// Rows that are too short or too odd for 16-byte accesses (Tile in launch.h): a block stages a tile of rows, which are
// one contiguous block, in shared memory. There neighbouring threads share a row and step over its features.

#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/trilinear/cuda/kernel.cuh"
#include "ops/trilinear/cuda/launch.h"
#include "ops/trilinear/math.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

// A tile in shared memory, N values to a pack of 16 bytes. Some neighbouring threads share a row and step over it, V
// adjacent values at a time. Only one thread reads and writes a value, in all corners.
template <int N, class T>
struct StagedTile {
  Tile tile;
  T* values = kit::shared_memory<T>();

  __device__ T* row(int i) const { return values + i * tile.row_step * N; }

  __device__ kit::Pack<T, N>& staged(unsigned i) const {
    const unsigned row = tile.input_packs.quotient(i);
    const unsigned gap = static_cast<unsigned>(tile.row_step) - static_cast<unsigned>(tile.input_packs.value());
    return reinterpret_cast<kit::Pack<T, N>*>(values)[i + row * gap];
  }

  __device__ void load(const T* from, int rows) const {
    constexpr int U = 4, step = kit::threads_per_block;  // U packs of a thread are in flight
    const unsigned packs = static_cast<unsigned>(rows) * static_cast<unsigned>(tile.input_packs.value());
    from += threadIdx.x * N;
    for (unsigned i = threadIdx.x; i < packs; i += U * step, from += U * step * N) {
      kit::Pack<T, N> pack[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (i + u * step < packs) pack[u] = kit::load<N>(from + u * step * N);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (i + u * step < packs) staged(i + u * step) = pack[u];
      }
    }
  }

  __device__ void store(T* to, int rows) const {
    constexpr int step = kit::threads_per_block;
    const unsigned packs = static_cast<unsigned>(rows) * static_cast<unsigned>(tile.input_packs.value());
    to += threadIdx.x * N;
    for (unsigned i = threadIdx.x; i < packs; i += step, to += step * N) kit::store(to, staged(i));
  }

  // Stores rows of the output, which overwrote the first corner.
  template <int V>
  __device__ void store_first(T* to, int rows) const {
    const unsigned output_packs = static_cast<unsigned>(tile.output_packs.value());
    for (unsigned i = threadIdx.x; i < static_cast<unsigned>(rows) * output_packs; i += kit::threads_per_block) {
      const unsigned of = tile.output_packs.quotient(i);
      kit::store(to + i * V, kit::load<V>(row(static_cast<int>(of)) + (i - of * output_packs) * V));
    }
  }
};

template <int N, int V, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, 8)
    staged_forward_kernel(ForwardParams<T, P> p, Tile tile, int lane_bits) {
  using A = kit::opmath<T>;
  const StagedTile<N, T> feats{tile};
  const int features = static_cast<int>(p.features), lane = threadIdx.x & ((1 << lane_bits) - 1);
  for (int64_t first = int64_t{blockIdx.x} * tile.rows; first < p.rows.count; first += int64_t{gridDim.x} * tile.rows) {
    const int rows = static_cast<int>(min(int64_t{tile.rows}, p.rows.count - first));
    feats.load(p.feats + first * 8 * p.features, rows);
    __syncthreads();
    for (int row = threadIdx.x >> lane_bits; row < rows; row += kit::threads_per_block >> lane_bits) {
      const auto voxel = voxel_at<A>(p.points + (first + row) * p.points_rows.row, p.points_coordinate);
      for (int f = lane * V; f < features; f += V << lane_bits) {
        T* corner = feats.row(row) + f;
        A sum[V] = {};
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          const auto value = kit::load<V>(corner + c * features);
#pragma unroll
          for (int v = 0; v < V; ++v) sum[v] += voxel.weight(c) * kit::widen<A>(value, v);
        }
        kit::Pack<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) out.value[v] = static_cast<T>(sum[v]);
        *reinterpret_cast<kit::Pack<T, V>*>(corner) = out;
      }
    }
    __syncthreads();
    feats.template store_first<V>(p.out + first * p.features, rows);
    __syncthreads();
  }
}

// Overwrites the features first, first + step, ... of a row's corners with their gradients, if requested, and adds to
// by_coordinate, the gradient of the point.
template <int V, bool FEATS, bool POINTS, class A, class T>
__device__ void staged_row_backward(T* row, const T* grad, const Voxel<A>& voxel, int features, int first, int step,
                                    A (&by_coordinate)[3]) {
  A dot[8] = {};
  for (int f = first; f < features; f += step) {
    const auto of_out = kit::load<V>(grad + f);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      T* const corner = row + c * features + f;
      if constexpr (POINTS) {
        const auto value = kit::load<V>(corner);
#pragma unroll
        for (int v = 0; v < V; ++v) dot[c] += kit::widen<A>(of_out, v) * kit::widen<A>(value, v);
      }
      if constexpr (FEATS) {
        kit::Pack<T, V> out;
#pragma unroll
        for (int v = 0; v < V; ++v) out.value[v] = static_cast<T>(voxel.weight(c) * kit::widen<A>(of_out, v));
        *reinterpret_cast<kit::Pack<T, V>*>(corner) = out;
      }
    }
  }
#pragma unroll
  for (int d = 0; d < 3; ++d) {
#pragma unroll
    for (int c = 0; c < 8; ++c) by_coordinate[d] += voxel.slope(c, d) * dot[c];
  }
}

// A thread writes its part of grad_feats where it read feats. It sums grad_points in a fixed order, as in kernel.cuh.
template <int N, int V, bool FEATS, bool POINTS, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, sizeof(T) < 8 ? 8 : 4)
    staged_backward_kernel(BackwardParams<T, P> p, Tile tile, int lane_bits) {
  using A = kit::opmath<T>;
  const StagedTile<N, T> feats{tile};
  const int features = static_cast<int>(p.features), lane = threadIdx.x & ((1 << lane_bits) - 1);
  for (int64_t first = int64_t{blockIdx.x} * tile.rows; first < p.rows.count; first += int64_t{gridDim.x} * tile.rows) {
    const int rows = static_cast<int>(min(int64_t{tile.rows}, p.rows.count - first));
    if constexpr (POINTS) {
      feats.load(p.feats + first * 8 * p.features, rows);
      __syncthreads();
    }
    // All threads run the same number of iterations, because the shuffles need whole warps.
    for (int begin = 0; begin < rows; begin += kit::threads_per_block >> lane_bits) {
      const int row = begin + static_cast<int>(threadIdx.x >> lane_bits);
      A by_coordinate[3] = {};
      if (row < rows) {
        const auto voxel = voxel_at<A>(p.points + (first + row) * p.points_rows.row, p.points_coordinate);
        staged_row_backward<V, FEATS, POINTS>(feats.row(row), p.grad + (first + row) * p.features, voxel, features,
                                              lane * V, V << lane_bits, by_coordinate);
      }
      if constexpr (POINTS) {
        for (int offset = 1 << lane_bits >> 1; offset > 0; offset /= 2) {
#pragma unroll
          for (int d = 0; d < 3; ++d) by_coordinate[d] += __shfl_xor_sync(~0u, by_coordinate[d], offset);
        }
        if (row < rows && lane < 3) {
          const A sum = lane == 0 ? by_coordinate[0] : lane == 1 ? by_coordinate[1] : by_coordinate[2];
          p.grad_points[(first + row) * 3 + lane] = static_cast<P>(sum);
        }
      }
    }
    __syncthreads();
    if constexpr (FEATS) {
      feats.store(p.grad_feats + first * 8 * p.features, rows);
      __syncthreads();
    }
  }
}

}  // namespace cppcuda::ops::trilinear
