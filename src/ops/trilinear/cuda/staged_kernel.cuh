#pragma once

// Rows that are too short or too odd for 16-byte accesses. The rows of a warp (Tile in launch.h) are one contiguous
// block; its threads load the block in packs of 16 bytes into the warp's shared memory, and compute there. No thread
// waits for another warp. If there are few features, F is their number and a thread computes whole rows, so that it
// computes the weights once and sums without other threads. If F is 0, neighbouring threads share a row and step over
// its features, V at a time. For F = 3 these kernels need 3 to 4 wavefronts of L1 per 128 bytes (docs/kernels.md),
// where the direct ones of kernel.cuh would read each value with an access of its own. No time was measured.

#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/trilinear/cuda/kernel.cuh"
#include "ops/trilinear/cuda/launch.h"
#include "ops/trilinear/math.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

// A warp's tile in shared memory. Only one thread reads and writes a value of it between load and store.
template <int N, int F, class T>
struct StagedTile {
  static constexpr int whole_packs = 8 * F / N;
  static constexpr int rows_of_thread = F > 0 ? rows_per_thread(whole_packs) : 0;
  static constexpr int packs_of_thread = (F > 0) ? (whole_packs * rows_of_thread) : staged_unroll;  // in flight
  using Pack = kit::Pack<T, N>;

  Tile tile;
  int lane = threadIdx.x % 32;
  Pack* shared = kit::warp_memory<Pack>(tile.packs);

  // The compiler knows these numbers if it knows F.
  __device__ int max_rows() const { return F > 0 ? 32 * rows_of_thread : tile.rows; }
  __device__ unsigned packs() const { return F > 0 ? whole_packs : static_cast<unsigned>(tile.input_packs.value()); }

  // Calls f(first, rows) for each of the warp's tiles.
  template <class Function>
  __device__ void for_each(int64_t rows, Function f) const {
    const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
    for (int64_t first = warp * max_rows(); first < rows; first += int64_t{gridDim.x} * blockDim.x / 32 * max_rows()) {
      __syncwarp();  // all lanes are done with the previous tile
      kit::forget(shared, tile.packs);
      f(first, static_cast<int>(min(int64_t{max_rows()}, rows - first)));
    }
  }

  __device__ Pack* row(int i) const {
    if constexpr (F > 0) {
      constexpr int group = rows_per_group(whole_packs);
      return shared + i / group * group_step(whole_packs) + i % group * whole_packs;
    } else {
      return shared + i * tile.row_step;
    }
  }

  // Pack i of the rows, one after another.
  __device__ Pack& staged(unsigned i) const {
    if constexpr (F > 0) {
      constexpr unsigned group_packs = rows_per_group(whole_packs) * whole_packs;
      return shared[i + i / group_packs * (group_step(whole_packs) - group_packs)];
    } else {
      return shared[i + tile.input_packs.quotient(i) * (static_cast<unsigned>(tile.row_step) - packs())];
    }
  }

  __device__ void load(const T* from, int rows) const {
    constexpr unsigned U = packs_of_thread;
    from += lane * N;
    for (unsigned i = lane; i < rows * packs(); i += U * 32, from += U * 32 * N) {
      Pack pack[U];
#pragma unroll
      for (unsigned u = 0; u < U; ++u) {
        if (i + u * 32 < rows * packs()) pack[u] = kit::load<N>(from + u * 32 * N);
      }
#pragma unroll
      for (unsigned u = 0; u < U; ++u) {
        if (i + u * 32 < rows * packs()) staged(i + u * 32) = pack[u];
      }
    }
    __syncwarp();
  }

  __device__ void store(T* to, int rows) const {
    __syncwarp();
    to += lane * N;
#pragma unroll F> 0 ? packs_of_thread : 1
    for (unsigned i = lane; i < rows * packs(); i += 32, to += 32 * N) kit::store(to, staged(i));
  }

  // Stores rows of the output, which overwrote the first corner.
  template <int V>
  __device__ void store_first(T* to, int rows) const {
    __syncwarp();
    const unsigned output_packs = static_cast<unsigned>(tile.output_packs.value());
    for (unsigned i = lane; i < rows * output_packs; i += 32) {
      const unsigned of = tile.output_packs.quotient(i);
      const T* const from = reinterpret_cast<const T*>(row(static_cast<int>(of)));
      kit::store(to + i * V, kit::load<V>(from + (i - of * output_packs) * V));
    }
  }

  // The functions that follow are for whole rows. Row r of a thread is row r * 32 + lane of the tile.

  template <class Function>
  __device__ void for_each_row(int rows, Function f) const {
#pragma unroll
    for (int r = 0; r < rows_of_thread; ++r) {
      if (r * 32 + lane < rows) f(r, r * 32 + lane);
    }
  }

  // Calls f(corner, feature, pack, n) for the values of a row, with the pack in which each is value n.
  template <bool Write, class Function>
  __device__ void for_each_value(int row, Function f) const {
    // Eight packs are one per corner; all of them at once would take too many registers.
#pragma unroll whole_packs < 8 ? whole_packs : 4
    for (int k = 0; k < whole_packs; ++k) {
      Pack& place = this->row(row)[k];
      Pack pack = place;
#pragma unroll
      for (int n = 0; n < N; ++n) f((k * N + n) / F, (k * N + n) % F, pack, n);
      if constexpr (Write) place = pack;
    }
  }

  // Stores three values of each row, through shared memory too.
  template <class V>
  __device__ void store_threes(V* to, int rows, const V (&values)[rows_of_thread][3]) const {
    V* threes = reinterpret_cast<V*>(shared);
    __syncwarp();
    for_each_row(rows, [&](int r, int row) {
#pragma unroll
      for (int d = 0; d < 3; ++d) threes[row * 3 + d] = values[r][d];
    });
    __syncwarp();
#pragma unroll
    for (int k = 0; k < rows_of_thread * 3; ++k) {
      if (k * 32 + lane < rows * 3) to[k * 32 + lane] = threes[k * 32 + lane];
    }
  }
};

// The coordinates of whole rows. They are loaded before the tile, so that the loads of both are in flight together.
template <class P, int R, class Tile>
__device__ void load_points(const Tile& tile, const P* from, int64_t row_step, int64_t step, int rows,
                            P (&points)[R][3]) {
  tile.for_each_row(rows, [&](int r, int row) {
#pragma unroll
    for (int d = 0; d < 3; ++d) points[r][d] = from[row * row_step + d * step];
  });
}

template <int N, int F, class T, class P>
__device__ void whole_rows_forward(const ForwardParams<T, P>& p, const StagedTile<N, F, T>& feats, int64_t first,
                                   int rows) {
  using A = kit::opmath<T>;
  constexpr int R = StagedTile<N, F, T>::rows_of_thread;
  P points[R][3];
  load_points(feats, p.points.data + first * p.points.row, p.points.row, p.points.inner, rows, points);
  feats.load(p.feats.data + first * 8 * F, rows);
  [[maybe_unused]] T threes[R][3];
  feats.for_each_row(rows, [&](int r, int row) {
    const Voxel<A> voxel(points[r][0], points[r][1], points[r][2]);
    A sum[F] = {};
    feats.template for_each_value<false>(
        row, [&](int c, int f, const auto& pack, int n) { sum[f] += voxel.weight(c) * kit::widen<A>(pack, n); });
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
  if constexpr (F == 3) feats.store_threes(p.out + first * F, rows, threes);
}

template <int V, int N, class T, class P>
__device__ void shared_rows_forward(const ForwardParams<T, P>& p, const StagedTile<N, 0, T>& feats, int lane_bits,
                                    int64_t first, int rows) {
  using A = kit::opmath<T>;
  const int features = static_cast<int>(p.features), lane = feats.lane & ((1 << lane_bits) - 1);
  feats.load(p.feats.data + first * 8 * p.features, rows);
  for (int row = feats.lane >> lane_bits; row < rows; row += 32 >> lane_bits) {
    const auto voxel = voxel_at<A>(p.points.data + (first + row) * p.points.row, p.points.inner);
    for (int f = lane * V; f < features; f += V << lane_bits) {
      T* corner = reinterpret_cast<T*>(feats.row(row)) + f;
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
  feats.template store_first<V>(p.out + first * p.features, rows);
}

// Forward of whole rows is bound by loads and needs more blocks in flight than backward, half of whose traffic is
// stores.
template <int N, int F, class T>
constexpr int forward_blocks() {
  if (F == 0) return sizeof(T) < 8 ? 8 : 6;
  return sizeof(T) < 8 && StagedTile<N, F, T>::packs_of_thread <= 4 ? 6 : 4;
}

template <int N, int F, int V, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, forward_blocks<N, F, T>())
    staged_forward_kernel(ForwardParams<T, P> p, Tile tile, int lane_bits) {
  const StagedTile<N, F, T> feats{tile};
  feats.for_each(p.rows.count, [&](int64_t first, int rows) {
    if constexpr (F > 0) {
      whole_rows_forward(p, feats, first, rows);
    } else {
      shared_rows_forward<V>(p, feats, lane_bits, first, rows);
    }
  });
}

// A thread writes its part of grad_feats where it read feats.
template <bool FEATS, bool POINTS, int N, int F, class T, class P>
__device__ void whole_rows_backward(const BackwardParams<T, P>& p, const StagedTile<N, F, T>& feats, int64_t first,
                                    int rows) {
  using A = kit::opmath<T>;
  constexpr int R = StagedTile<N, F, T>::rows_of_thread;
  P points[R][3];                           // overwritten by their gradients
  constexpr int together = F == 3 ? 1 : F;  // the values of grad in one access
  kit::Pack<T, together> grad[R][F / together];
  load_points(feats, p.points.data + first * p.points.row, p.points.row, p.points.inner, rows, points);
  feats.for_each_row(rows, [&](int r, int row) {
#pragma unroll
    for (int f = 0; f < F; f += together) {
      grad[r][f / together] = kit::load<together>(p.grad.data + (first + row) * F + f);
    }
  });
  if constexpr (POINTS) feats.load(p.feats.data + first * 8 * F, rows);
  feats.for_each_row(rows, [&](int r, int row) {
    const Voxel<A> voxel(points[r][0], points[r][1], points[r][2]);
    A by_coordinate[3] = {}, dot = 0;
    feats.template for_each_value<FEATS>(row, [&](int c, int f, auto& pack, int n) {
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
  if constexpr (FEATS) feats.store(p.grad_feats + first * 8 * F, rows);
  if constexpr (POINTS) feats.store_threes(p.grad_points + first * 3, rows, points);
}

// Overwrites the features first, first + step, ... of a row's corners with their gradients, if requested, and adds to
// by_coordinate, the gradient of the point.
template <int V, bool FEATS, bool POINTS, class A, class T>
__device__ void shared_row_backward(T* row, const T* grad, const Voxel<A>& voxel, int features, int first, int step,
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

// Sums grad_points in a fixed order, as in kernel.cuh.
template <int V, bool FEATS, bool POINTS, int N, class T, class P>
__device__ void shared_rows_backward(const BackwardParams<T, P>& p, const StagedTile<N, 0, T>& feats, int lane_bits,
                                     int64_t first, int rows) {
  using A = kit::opmath<T>;
  const int features = static_cast<int>(p.features), lane = feats.lane & ((1 << lane_bits) - 1);
  if constexpr (POINTS) feats.load(p.feats.data + first * 8 * p.features, rows);
  // All lanes run the same number of iterations, because the shuffles need whole warps.
  for (int begin = 0; begin < rows; begin += 32 >> lane_bits) {
    const int row = begin + (feats.lane >> lane_bits);
    A by_coordinate[3] = {};
    if (row < rows) {
      const auto voxel = voxel_at<A>(p.points.data + (first + row) * p.points.row, p.points.inner);
      shared_row_backward<V, FEATS, POINTS>(reinterpret_cast<T*>(feats.row(row)),
                                            p.grad.data + (first + row) * p.features, voxel, features, lane * V,
                                            V << lane_bits, by_coordinate);
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
  if constexpr (FEATS) feats.store(p.grad_feats + first * 8 * p.features, rows);
}

template <int N, int F, int V, bool FEATS, bool POINTS, class T, class P>
__global__ void __launch_bounds__(kit::threads_per_block, F == 0 && sizeof(T) < 8 ? 5 : 4)
    staged_backward_kernel(BackwardParams<T, P> p, Tile tile, int lane_bits) {
  const StagedTile<N, F, T> feats{tile};
  feats.for_each(p.rows.count, [&](int64_t first, int rows) {
    if constexpr (F > 0) {
      whole_rows_backward<FEATS, POINTS>(p, feats, first, rows);
    } else {
      shared_rows_backward<V, FEATS, POINTS>(p, feats, lane_bits, first, rows);
    }
  });
}

}  // namespace cppcuda::ops::trilinear
