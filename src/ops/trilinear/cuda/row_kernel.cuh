#pragma once

// Rows of few features: a thread computes a whole row, so that it computes the weights once and sums without other
// threads. The rows of a warp are one contiguous block; its threads load the block in packs and exchange these through
// shared memory.

#include "cppcuda/kit/cuda/banks.h"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/trilinear/cuda/launch.h"
#include "ops/trilinear/math.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

// The rows that a warp computes at once. Thread `lane` computes rows lane, 32 + lane, ... of them.
template <int F, class T>
struct WarpRows {
  static constexpr int N = kit::pack_size<T>, packs = 8 * F / N;
  static constexpr int per_thread = rows_per_thread(packs), count = 32 * per_thread;
  // Forward is bound by loads and needs more blocks in flight than backward, half of whose traffic is stores.
  static constexpr int blocks_per_sm = per_thread * packs <= 4 && sizeof(T) < 8 ? 6 : 4;
  using Pack = kit::Pack<T, N>;

  int lane = threadIdx.x % 32;
  Pack* shared = kit::shared_memory<Pack>() + threadIdx.x / 32 * kit::padded(count * packs, 16);

  // Pack k * 32 + lane of the warp, and pack k of row r * 32 + lane.
  __device__ Pack& of_warp(int k) const { return shared[k * kit::padded(32, 16) + kit::padded(lane, 16)]; }
  __device__ Pack& of_row(int r, int k) const {
    return shared[r * kit::padded(32 * packs, 16) + kit::padded(lane * packs + k, 16)];
  }

  static __device__ int64_t first() { return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32 * count; }
  static __device__ int64_t step() { return int64_t{gridDim.x} * blockDim.x * per_thread; }

  // Calls f(r, row) for each of the thread's rows.
  template <class Function>
  __device__ void for_each(int rows, Function f) const {
#pragma unroll
    for (int r = 0; r < per_thread; ++r) {
      if (r * 32 + lane < rows) f(r, r * 32 + lane);
    }
  }

  // Calls f(corner, feature, pack, n) for the values of a row, with the pack in which each is value n.
  template <bool Write, class Function>
  __device__ void for_each_value(int r, Function f) const {
    // Eight packs are one per corner; all of them at once would take too many registers.
#pragma unroll packs < 8 ? packs : 4
    for (int k = 0; k < packs; ++k) {
      Pack pack = of_row(r, k);
#pragma unroll
      for (int n = 0; n < N; ++n) f((k * N + n) / F, (k * N + n) % F, pack, n);
      if constexpr (Write) of_row(r, k) = pack;
    }
  }

  // Comes before `load`, so that the loads of both are in flight together.
  template <class P>
  __device__ void load_points(const P* from, int64_t row_step, int64_t step, int rows,
                              P (&points)[per_thread][3]) const {
    for_each(rows, [&](int r, int row) {
#pragma unroll
      for (int d = 0; d < 3; ++d) points[r][d] = from[row * row_step + d * step];
    });
  }

  __device__ void load(const T* from, int rows) const {
    Pack pack[per_thread * packs];
#pragma unroll
    for (int k = 0; k < per_thread * packs; ++k) {
      if (k * 32 + lane < rows * packs) pack[k] = kit::load<N>(from + (k * 32 + lane) * N);
    }
    __syncwarp();  // all lanes are done with the previous rows
#pragma unroll
    for (int k = 0; k < per_thread * packs; ++k) {
      if (k * 32 + lane < rows * packs) of_warp(k) = pack[k];
    }
    __syncwarp();
  }

  __device__ void store(T* to, int rows) const {
    __syncwarp();
#pragma unroll
    for (int k = 0; k < per_thread * packs; ++k) {
      if (k * 32 + lane < rows * packs) kit::store(to + (k * 32 + lane) * N, of_warp(k));
    }
    __syncwarp();  // before the next rows overwrite these
  }

  // Stores three values of each row, through shared memory too.
  template <class V>
  __device__ void store_threes(V* to, int rows, const V (&values)[per_thread][3]) const {
    V* threes = reinterpret_cast<V*>(shared);
    __syncwarp();
    for_each(rows, [&](int r, int row) {
#pragma unroll
      for (int d = 0; d < 3; ++d) threes[row * 3 + d] = values[r][d];
    });
    __syncwarp();
#pragma unroll
    for (int k = 0; k < per_thread * 3; ++k) {
      if (k * 32 + lane < rows * 3) to[k * 32 + lane] = threes[k * 32 + lane];
    }
  }
};

template <int F, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, WarpRows<F, T>::blocks_per_sm)
    row_forward_kernel(ForwardParams<T, P> p) {
  using A = kit::opmath<T>;
  using Rows = WarpRows<F, T>;
  const Rows warp;
  for (int64_t first = warp.first(); first < p.rows.count; first += warp.step()) {
    const int rows = static_cast<int>(min(int64_t{Rows::count}, p.rows.count - first));
    P points[Rows::per_thread][3];
    warp.load_points(p.points + first * p.points_rows.row, p.points_rows.row, p.points_coordinate, rows, points);
    warp.load(p.feats + first * 8 * F, rows);
    [[maybe_unused]] T threes[Rows::per_thread][3];
    warp.for_each(rows, [&](int r, int row) {
      const Voxel<A> voxel(points[r][0], points[r][1], points[r][2]);
      A sum[F] = {};
      warp.template for_each_value<false>(
          r, [&](int c, int f, const auto& pack, int n) { sum[f] += voxel.weight(c) * kit::widen<A>(pack, n); });
      if constexpr (F == 3) {
#pragma unroll
        for (int f = 0; f < F; ++f) threes[r][f] = static_cast<T>(sum[f]);
      } else {
        kit::Pack<T, F> out;
#pragma unroll
        for (int f = 0; f < F; ++f) out.value[f] = static_cast<T>(sum[f]);
        kit::store(p.out + (first + row) * F, out);
      }
    });
    if constexpr (F == 3) warp.store_threes(p.out + first * F, rows, threes);
  }
}

template <int F, bool FEATS, bool POINTS, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, 4) row_backward_kernel(BackwardParams<T, P> p) {
  using A = kit::opmath<T>;
  using Rows = WarpRows<F, T>;
  const Rows warp;
  for (int64_t first = warp.first(); first < p.rows.count; first += warp.step()) {
    const int rows = static_cast<int>(min(int64_t{Rows::count}, p.rows.count - first));
    P points[Rows::per_thread][3];            // overwritten by their gradients
    constexpr int together = F == 3 ? 1 : F;  // the values of grad in one access
    kit::Pack<T, together> grad[Rows::per_thread][F / together];
    warp.load_points(p.points + first * p.points_rows.row, p.points_rows.row, p.points_coordinate, rows, points);
    warp.for_each(rows, [&](int r, int row) {
#pragma unroll
      for (int f = 0; f < F; f += together) {
        grad[r][f / together] = kit::load<together>(p.grad + (first + row) * F + f);
      }
    });
    if constexpr (POINTS) warp.load(p.feats + first * 8 * F, rows);
    warp.for_each(rows, [&](int r, int) {
      const Voxel<A> voxel(points[r][0], points[r][1], points[r][2]);
      A by_coordinate[3] = {}, dot = 0;
      warp.template for_each_value<FEATS>(r, [&](int c, int f, auto& pack, int n) {
        const A dy = kit::widen<A>(grad[r][f / together], f % together);
        if constexpr (POINTS) {
          dot += dy * kit::widen<A>(pack, n);
          if (f == F - 1) {
#pragma unroll
            for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
            dot = 0;
          }
        }
        if constexpr (FEATS) pack.value[n] = static_cast<T>(voxel.weight(c) * dy);
      });
#pragma unroll
      for (int d = 0; d < 3; ++d) points[r][d] = static_cast<P>(by_coordinate[d]);
    });
    if constexpr (FEATS) warp.store(p.grad_feats + first * 8 * F, rows);
    if constexpr (POINTS) warp.store_threes(p.grad_points + first * 3, rows, points);
  }
}

}  // namespace cppcuda::ops::trilinear
