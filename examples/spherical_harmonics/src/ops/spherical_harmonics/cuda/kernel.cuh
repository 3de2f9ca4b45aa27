// The CUDA kernels: a thread computes a point. The rows of a warp's points are staged in shared memory, so that
// neighbouring threads read and write neighbouring values. Rows that do not fit are read and written by their thread.
#pragma once

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/spherical_harmonics/math.h"
#include "ops/spherical_harmonics/params.h"

namespace sph::ops::spherical_harmonics {

constexpr int warp_threads = 32;

// The values between rows in shared memory, an odd number: threads that access the same value of their rows access
// different banks.
CPPCUDA_HOST_DEVICE constexpr int staged_step(int degree) { return size(degree) | 1; }

__constant__ constexpr Table<float> float_table;
__constant__ constexpr Table<double> double_table;

template <class A>
__device__ const Table<A>& table() {
  if constexpr (sizeof(A) == sizeof(float)) {
    return float_table;
  } else {
    return double_table;
  }
}

// Calls f(first, rows) for the tiles of a warp, of 32 rows each.
template <class F>
__device__ void for_each_tile(int64_t rows, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t first = thread / warp_threads * warp_threads; first < rows; first += step) {
    f(first, static_cast<int>(min(int64_t{warp_threads}, rows - first)));
  }
}

// Calls f(row, i) for the values of the tile's rows, each of n values. Neighbouring threads get neighbouring values.
template <class F>
__device__ void for_each_value(int rows, int n, F f) {
  const int lane = threadIdx.x % warp_threads, step_rows = warp_threads / n, step_values = warp_threads % n;
  for (int row = lane / n, i = lane % n; row < rows; row += step_rows) {
    f(row, i);
    i += step_values;
    if (i >= n) {
      i -= n;
      ++row;
    }
  }
}

template <class A, class T>
__device__ Point<A> load_point(const kit::RowsOf<T>& xyz, const kit::Rows& rows, int64_t r) {
  const T* row = xyz.at(rows, r);
  return {static_cast<A>(row[0]), static_cast<A>(row[xyz.inner]), static_cast<A>(row[2 * xyz.inner])};
}

template <bool staged, class T>
__global__ void __launch_bounds__(kit::threads_per_block) forward_kernel(ForwardParams<T> p) {
  using A = kit::opmath<T>;
  const int lane = threadIdx.x % warp_threads, n = size(p.degree), step = staged_step(p.degree);
  T* const shared = staged ? kit::warp_memory<T>(warp_threads * step) : nullptr;
  for_each_tile(p.rows.count, [&](int64_t first, int rows) {
    if (lane < rows) {
      Point<A> point = load_point<A>(p.xyz, p.rows, first + lane);
      if (p.normalize) point = point.scaled(inverse_norm(point));
      T* const to = staged ? shared + lane * step : p.output + (first + lane) * n;
      harmonics(table<A>(), p.degree, point, [&](int i, A value) { to[i] = static_cast<T>(value); });
    }
    if constexpr (staged) {
      __syncwarp();
      for_each_value(rows, n, [&](int r, int i) { p.output[(first + r) * n + i] = shared[r * step + i]; });
      __syncwarp();
      kit::forget(shared, warp_threads * step);
    }
  });
}

template <bool staged, class T>
__global__ void __launch_bounds__(kit::threads_per_block) backward_kernel(BackwardParams<T> p) {
  using A = kit::opmath<T>;
  const int lane = threadIdx.x % warp_threads, n = size(p.degree), step = staged_step(p.degree);
  T* const shared = staged ? kit::warp_memory<T>(warp_threads * step) : nullptr;
  for_each_tile(p.rows.count, [&](int64_t first, int rows) {
    if constexpr (staged) {
      if (n < warp_threads) {
        for_each_value(rows, n,
                       [&](int r, int i) { shared[r * step + i] = p.grad.at(p.rows, first + r)[i * p.grad.inner]; });
      } else {  // the address of a row takes more instructions than a value
        for (int r = 0; r < rows; ++r) {
          const T* row = p.grad.at(p.rows, first + r);
          for (int i = lane; i < n; i += warp_threads) shared[r * step + i] = row[i * p.grad.inner];
        }
      }
      __syncwarp();
    }
    if (lane < rows) {
      Point<A> point = load_point<A>(p.xyz, p.rows, first + lane);
      A inverse = 1;
      if (p.normalize) {
        inverse = inverse_norm(point);
        point = point.scaled(inverse);
      }
      const T* const row = staged ? shared + lane * step : p.grad.at(p.rows, first + lane);
      const int64_t grad_step = staged ? 1 : p.grad.inner;
      Point<A> grad = gradient(table<A>(), p.degree, point, [&](int i) { return static_cast<A>(row[i * grad_step]); });
      if (p.normalize) grad = project(grad, point, inverse);
      T* const to = p.grad_xyz + (first + lane) * 3;
      to[0] = static_cast<T>(grad.x);
      to[1] = static_cast<T>(grad.y);
      to[2] = static_cast<T>(grad.z);
    }
    if constexpr (staged) {
      __syncwarp();
      kit::forget(shared, warp_threads * step);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kit::threads_per_block) partials_kernel(PartialsParams<T> p) {
  using A = kit::opmath<T>;
  const int n = size(p.degree), lane = threadIdx.x % warp_threads;
  for_each_tile(p.rows.count, [&](int64_t first, int rows) {
    if (lane >= rows) return;
    const T* const from = p.harmonics.at(p.rows, first + lane);
    T* const to = p.output + (first + lane) * 3 * n;
    partials<A>(
        table<A>(), p.degree, [&](int i) { return static_cast<A>(from[i * p.harmonics.inner]); },
        [&](int d, int i, A value) { to[d * n + i] = static_cast<T>(value); });
  });
}

template <class T>
__global__ void __launch_bounds__(kit::threads_per_block) partials_transposed_kernel(PartialsTransposedParams<T> p) {
  using A = kit::opmath<T>;
  const int lane = threadIdx.x % warp_threads;
  for_each_tile(p.rows.count, [&](int64_t first, int rows) {
    if (lane >= rows) return;
    const T* const from = p.grad.at(p.rows, first + lane);
    T* const to = p.output + (first + lane) * size(p.degree - 1);
    partials_transposed<A>(
        table<A>(), p.degree, [&](int d, int i) { return static_cast<A>(from[d * p.grad.outer + i * p.grad.inner]); },
        [&](int i, A value) { to[i] = static_cast<T>(value); });
  });
}

}  // namespace sph::ops::spherical_harmonics
