// The CUDA kernels: a warp computes a row, then the one that is as many rows further as the grid has warps. Change: the
// loops. The names of kernels end in _kernel.
#pragma once

#include "cppcuda/kit/cuda/launch_shape.h"
#include "ops/row_norm/math.h"
#include "ops/row_norm/params.h"

namespace my_ops::ops::row_norm {

constexpr int warp_threads = 32;
constexpr int rows_per_block = kit::threads_per_block / warp_threads;  // a row per warp

// The sum over the threads of a warp. The order is fixed, and every thread gets the same bits.
template <class A>
__device__ A warp_sum(A value) {
  for (int offset = warp_threads / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

template <class T>
__global__ void __launch_bounds__(kit::threads_per_block) forward_kernel(ForwardParams<T> p) {
  using A = kit::opmath<T>;
  const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
  const int64_t grid_rows = int64_t{gridDim.x} * rows_per_block;
  for (int64_t row = int64_t{blockIdx.x} * rows_per_block + warp; row < p.rows.count; row += grid_rows) {
    const T* input = p.input.at(p.rows, row);
    A squares = 0;
    for (int64_t f = lane; f < p.features; f += warp_threads) {
      const A x = static_cast<A>(input[f * p.input.inner]);
      squares += x * x;
    }
    const A rstd = reciprocal_std(warp_sum(squares), p.features, p.eps);
    if (p.rstd && lane == 0) p.rstd[row] = rstd;
    for (int64_t f = lane; f < p.features; f += warp_threads) {
      p.output[row * p.features + f] = static_cast<T>(rstd * static_cast<A>(input[f * p.input.inner]));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kit::threads_per_block) backward_kernel(BackwardParams<T> p) {
  using A = kit::opmath<T>;
  const int lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
  const int64_t grid_rows = int64_t{gridDim.x} * rows_per_block;
  for (int64_t row = int64_t{blockIdx.x} * rows_per_block + warp; row < p.rows.count; row += grid_rows) {
    const T *grad = p.grad.at(p.rows, row), *input = p.input.at(p.rows, row);
    const A rstd = *p.rstd.at(p.rows, row);
    A dot = 0;
    for (int64_t f = lane; f < p.features; f += warp_threads) {
      dot += static_cast<A>(grad[f * p.grad.inner]) * static_cast<A>(input[f * p.input.inner]);
    }
    const A mean = rstd * warp_sum(dot) / static_cast<A>(p.features);
    for (int64_t f = lane; f < p.features; f += warp_threads) {
      const A g = static_cast<A>(grad[f * p.grad.inner]), x = static_cast<A>(input[f * p.input.inner]);
      p.grad_input[row * p.features + f] = static_cast<T>(input_gradient(g, x, rstd, mean));
    }
  }
}

}  // namespace my_ops::ops::row_norm
