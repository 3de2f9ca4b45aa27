#pragma once

// All steps of a sequence in one kernel per direction. The rows of a state depend on no other row, so blocks take some
// rows each and need not wait for each other. A thread belongs to one feature of one gate, and keeps the recurrent
// weights of its sums in registers for all steps, as G. Diamos et al. (2016) do. The states are in shared memory.

#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/lltm_cell/cuda/launch.h"
#include "ops/lltm_cell/math.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {

// The products of a thread's weights with values in shared memory. All threads of a warp that belong to one gate read
// the same value at once.
template <int K, class A>
__device__ A dot(const A (&weights)[K], const A* values) {
  constexpr int N = kit::pack_size<A>;
  A sum[N] = {};  // several sums, because an addition waits for the one before it
#pragma unroll
  for (int k = 0; k < K; k += N) {
    const auto pack = kit::load<N>(values + k);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] += weights[k + n] * pack.value[n];
  }
#pragma unroll
  for (int n = 1; n < N; ++n) sum[0] += sum[n];
  return sum[0];
}

template <class T, class C, int K>
__global__ void __launch_bounds__(steps_threads(K)) steps_forward_kernel(StepsForwardParams<T, C> p, int block_rows) {
  using A = kit::opmath<T>;
  const int size = static_cast<int>(p.size), gates = 3 * size;
  const int gate = threadIdx.x / size, s = threadIdx.x % size;
  const bool active = gate < 3;  // not at the end of the last warp
  // For each row: the state, zeros after it up to K; the gates; the state of the cells.
  A *const state = kit::shared_memory<A>(), *const gate_values = state + block_rows * K,
           *const cell_state = gate_values + block_rows * gates;
  A weights[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    weights[k] = active && k < size ? static_cast<A>(p.weight[(gate * size + s) * p.weight_row + k]) : A(0);
  }
  for (int i = threadIdx.x; i < block_rows * K; i += blockDim.x) state[i] = 0;

  for (int64_t first = int64_t{blockIdx.x} * block_rows; first < p.rows; first += int64_t{gridDim.x} * block_rows) {
    const int rows = static_cast<int>(min(int64_t{block_rows}, p.rows - first));
    __syncthreads();
    // Threads of the three gates share the rows of the pointwise part.
    for (int r = gate; active && r < rows; r += 3) {
      state[r * K + s] = static_cast<A>(p.h0[(first + r) * size + s]);
      cell_state[r * size + s] = static_cast<A>(p.c0[(first + r) * size + s]);
    }
    __syncthreads();
    for (int64_t of_step = first; of_step < p.steps * p.rows; of_step += p.rows) {
#pragma unroll 1  // unrolled, it would spill registers
      for (int r = 0; active && r < rows; ++r) {
        T* const value = p.gates + (of_step + r) * gates + threadIdx.x;
        // Rounded as it is saved for backward.
        *value = static_cast<T>(static_cast<A>(*value) + dot<K>(weights, state + r * K));
        gate_values[r * gates + threadIdx.x] = static_cast<A>(*value);
      }
      __syncthreads();
      for (int r = gate; active && r < rows; r += 3) {
        const A* const g = gate_values + r * gates + s;
        const auto next = cell<A>(g[0], g[size], g[2 * size], cell_state[r * size + s]);
        const T hy = static_cast<T>(next.hy);
        const C cy = static_cast<C>(next.cy);
        p.output[(of_step + r) * size + s] = hy;
        p.cells[(of_step + r) * size + s] = cy;
        state[r * K + s] = static_cast<A>(hy);
        cell_state[r * size + s] = static_cast<A>(cy);
      }
      __syncthreads();
    }
  }
}

template <class T, class C, int K>
__global__ void __launch_bounds__(steps_threads(K)) steps_backward_kernel(StepsBackwardParams<T, C> p, int block_rows) {
  using A = kit::opmath<T>;
  const int size = static_cast<int>(p.size), gates = 3 * size;
  const int gate = threadIdx.x / size, s = threadIdx.x % size;
  const bool active = gate < 3;  // not at the end of the last warp
  // For each row: the gradients of the three gates, zeros after each up to K; the gradient of the state, as one part
  // from each gate; the gradient of the cells' state.
  A *const of_gates = kit::shared_memory<A>(), *const of_state = of_gates + block_rows * 3 * K,
           *const of_cells = of_state + block_rows * gates;
  A weights[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    weights[k] = active && k < size ? static_cast<A>(p.weight[(gate * size + k) * p.weight_row + s]) : A(0);
  }
  for (int i = threadIdx.x; i < block_rows * 3 * K; i += blockDim.x) of_gates[i] = 0;

  for (int64_t first = int64_t{blockIdx.x} * block_rows; first < p.rows; first += int64_t{gridDim.x} * block_rows) {
    const int rows = static_cast<int>(min(int64_t{block_rows}, p.rows - first));
    for (int r = gate; active && r < rows; r += 3) {
      const int64_t at = (first + r) * size + s;
      A* const parts = of_state + r * gates + s;
      parts[0] = p.grad_hn ? static_cast<A>(p.grad_hn[at]) : A(0);
      parts[size] = parts[2 * size] = 0;
      of_cells[r * size + s] = p.grad_cn ? static_cast<A>(p.grad_cn[at]) : A(0);
    }
    __syncthreads();
    const auto sum_of_parts = [&](int r) {
      const A* const parts = of_state + r * gates + s;
      return parts[0] + parts[size] + parts[2 * size];
    };
    bool has_h = p.grad_hn, has_c = p.grad_cn;
    for (int64_t t = p.steps - 1; t >= 0; --t) {
      has_h |= p.grad_output != nullptr;
      has_c |= p.grad_cells != nullptr;
      for (int r = gate; active && r < rows; r += 3) {
        const int64_t row = t * p.rows + first + r, at = row * size + s;
        const T* const g = p.gates + row * gates + s;
        const A g0 = static_cast<A>(g[0]), g1 = static_cast<A>(g[size]), g2 = static_cast<A>(g[2 * size]);
        const A cx = static_cast<A>(t == 0 ? p.c0[(first + r) * size + s] : p.cells[at - p.rows * size]);
        A h = sum_of_parts(r), c = of_cells[r * size + s];
        if (p.grad_output) h += static_cast<A>(p.grad_output[at]);
        if (p.grad_cells) c += static_cast<A>(p.grad_cells[at]);
        auto d = cell_backward(has_h, has_c, h, c, g0, g1, g2, cx);
        if (p.grad_gates) {
          const T* const from = p.grad_gates + row * gates + s;
          d.g0 += static_cast<A>(from[0]);
          d.g1 += static_cast<A>(from[size]);
          d.g2 += static_cast<A>(from[2 * size]);
        }
        const A values[3] = {d.g0, d.g1, d.g2};
#pragma unroll
        for (int q = 0; q < 3; ++q) {
          p.total_grad_gates[row * gates + q * size + s] = static_cast<T>(values[q]);
          of_gates[(r * 3 + q) * K + s] = values[q];
        }
        of_cells[r * size + s] = d.cx;
      }
      __syncthreads();
#pragma unroll 1  // unrolled, it would spill registers
      for (int r = 0; active && r < rows; ++r) {
        of_state[r * gates + threadIdx.x] = dot<K>(weights, of_gates + (r * 3 + gate) * K);
      }
      // A gradient of the gates of a step alone reaches the state before it, too.
      has_h = has_c = true;
      __syncthreads();
    }
    for (int r = gate; active && r < rows; r += 3) {
      const int64_t at = (first + r) * size + s;
      if (p.grad_h0) p.grad_h0[at] = static_cast<T>(sum_of_parts(r));
      if (p.grad_c0) p.grad_c0[at] = static_cast<C>(of_cells[r * size + s]);
    }
  }
}

}  // namespace cppcuda::ops::lltm_cell
