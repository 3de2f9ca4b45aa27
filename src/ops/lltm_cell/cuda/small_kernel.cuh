#pragma once

// A whole small cell in one kernel per direction, because launches dominate the time of small products (an estimate; no
// time was measured).

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/lltm_cell/cuda/launch.h"
#include "ops/lltm_cell/math.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {

// The number of steps of a sum whose loads are in flight together.
constexpr int small_unroll = 4;

// Adds x w to the sums of three gates, whose rows of w are `gate_step` apart. Each lane adds its part.
template <int N, class T, class A>
__device__ void add_products(A (&sum)[3], const T* x, const T* w, int size, int gate_step, int lane) {
#pragma unroll small_unroll
  for (int k = lane * N; k < size; k += small_lanes * N) {
    const auto value = kit::load<N>(x + k);
#pragma unroll
    for (int g = 0; g < 3; ++g) {
      const auto weight = kit::load<N>(w + g * gate_step + k);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[g] += kit::widen<A>(value, i) * kit::widen<A>(weight, i);
    }
  }
}

template <int N, class T, class C>
__global__ void __launch_bounds__(kit::threads_per_block) small_forward_kernel(SmallForwardParams<T, C> p) {
  using A = kit::opmath<T>;
  const int lane = threadIdx.x % small_lanes, width = p.size + p.inputs, elements = p.rows * p.size;
  const int step = blockDim.x / small_lanes;
  // All threads of a block run the same number of iterations, because the shuffles need whole warps.
  for (int first = blockIdx.x * step; first < elements; first += gridDim.x * step) {
    const int element = first + static_cast<int>(threadIdx.x) / small_lanes;
    const int row = element / p.size, s = element % p.size;
    A sum[3] = {};
    if (element < elements) {
      const T* w = p.weight + s * width;
      add_products<N>(sum, p.hx + row * p.size, w, p.size, p.size * width, lane);
      add_products<N>(sum, p.input + row * p.inputs, w + p.size, p.inputs, p.size * width, lane);
    }
    for (int offset = small_lanes / 2; offset > 0; offset /= 2) {
#pragma unroll
      for (int g = 0; g < 3; ++g) sum[g] += __shfl_xor_sync(~0u, sum[g], offset);
    }
    if (element < elements && lane == 0) {
      // Rounded as they are saved for backward, so that backward reads the same values.
      T gate[3];
#pragma unroll
      for (int g = 0; g < 3; ++g) {
        gate[g] = static_cast<T>(sum[g] + static_cast<A>(p.bias[g * p.size + s]));
        p.gates[(row * 3 + g) * p.size + s] = gate[g];
      }
      const auto state = cell<A>(static_cast<A>(gate[0]), static_cast<A>(gate[1]), static_cast<A>(gate[2]),
                                 static_cast<A>(p.cx[element]));
      p.hy[element] = static_cast<T>(state.hy);
      p.cy[element] = static_cast<C>(state.cy);
    }
  }
}

// The address of [hx, input][r, k].
template <class T, class C>
__device__ const T* concatenated(const SmallBackwardParams<T, C>& p, int r, int k) {
  return k < p.size ? p.hx + r * p.size + k : p.input + r * p.inputs + (k - p.size);
}

// The gradients of the gates of all rows, in shared memory [rows, 3 size]. One block writes the gradient of cx.
template <class A, class T, class C>
__device__ void small_gate_gradients(const SmallBackwardParams<T, C>& p, A* total_grad_gates) {
  constexpr int U = small_unroll;  // elements of a thread whose loads are in flight together
  const int elements = p.rows * p.size;
  for (int first = threadIdx.x; first < elements; first += U * blockDim.x) {
    T gate[U][3], grad_gate[U][3], grad_hy[U];
    C cx[U], grad_cy[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int element = first + u * blockDim.x;
      if (element >= elements) continue;
      const int at = element / p.size * 3 * p.size + element % p.size;
#pragma unroll
      for (int g = 0; g < 3; ++g) {
        gate[u][g] = p.gates[at + g * p.size];
        grad_gate[u][g] = p.grad_gates ? p.grad_gates[at + g * p.size] : T(0);
      }
      cx[u] = p.cx[element];
      grad_hy[u] = p.grad_hy ? p.grad_hy[element] : T(0);
      grad_cy[u] = p.grad_cy ? p.grad_cy[element] : C(0);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int element = first + u * blockDim.x;
      if (element >= elements) continue;
      const A hy = static_cast<A>(grad_hy[u]), cy = static_cast<A>(grad_cy[u]), g0 = static_cast<A>(gate[u][0]),
              g1 = static_cast<A>(gate[u][1]), g2 = static_cast<A>(gate[u][2]), state = static_cast<A>(cx[u]);
      const auto d = cell_backward(p.grad_hy != nullptr, p.grad_cy != nullptr, hy, cy, g0, g1, g2, state);
      A* const total = total_grad_gates + element / p.size * 3 * p.size + element % p.size;
      total[0] = d.g0 + static_cast<A>(grad_gate[u][0]);
      total[p.size] = d.g1 + static_cast<A>(grad_gate[u][1]);
      total[2 * p.size] = d.g2 + static_cast<A>(grad_gate[u][2]);
      if (p.grad_cx && blockIdx.x == 0) p.grad_cx[element] = static_cast<C>(d.cx);
    }
  }
}

// grad_weight = total_grad_gates^T [hx, input]: a thread takes N columns of a row.
template <int N, class A, class T, class C>
__device__ void small_weight_gradient(const SmallBackwardParams<T, C>& p, const A* total_grad_gates) {
  const int packs = (p.size + p.inputs) / N;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 3 * p.size * packs; i += gridDim.x * blockDim.x) {
    const int j = i / packs, k = i % packs * N;
    A sum[N] = {};
#pragma unroll small_unroll
    for (int r = 0; r < p.rows; ++r) {
      const auto x = kit::load<N>(concatenated(p, r, k));
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += total_grad_gates[r * 3 * p.size + j] * kit::widen<A>(x, n);
    }
    kit::Pack<T, N> out;
#pragma unroll
    for (int n = 0; n < N; ++n) out.value[n] = static_cast<T>(sum[n]);
    kit::store(p.grad_weight + j * packs * N + k, out);
  }
}

// [grad_hx, grad_input] = total_grad_gates weight: a block takes some rows, and N columns of each of some lanes. Each
// group of such lanes adds a part of the sum; the groups of a warp add theirs by shuffles, and the warps through
// `partial`, in this order.
template <int N, class A, class T, class C>
__device__ void small_input_gradients(const SmallBackwardParams<T, C>& p, const A* total_grad_gates, A* partial) {
  constexpr int R = small_rows, lanes = small_columns;
  static_assert(R * lanes == 32);  // one warp writes the results
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % lanes, width = p.size + p.inputs;
  const int groups = kit::ceil_div(width, lanes * N), tasks = groups * kit::ceil_div(p.rows, R);
  for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int first = task / groups * R, k = (task % groups * lanes + column) * N;
    A sum[R][N] = {};
    if (k < width) {
#pragma unroll small_unroll
      for (int j = threadIdx.x / lanes; j < 3 * p.size; j += small_backward_threads / lanes) {
        const auto w = kit::load<N>(p.weight + j * width + k);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const A d = total_grad_gates[min(first + r, p.rows - 1) * 3 * p.size + j];
#pragma unroll
          for (int n = 0; n < N; ++n) sum[r][n] += d * kit::widen<A>(w, n);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        sum[r][n] += __shfl_xor_sync(~0u, sum[r][n], lanes);
        sum[r][n] += __shfl_xor_sync(~0u, sum[r][n], 2 * lanes);
        if (lane < lanes) partial[((warp * R + r) * lanes + column) * N + n] = sum[r][n];
      }
    }
    __syncthreads();
    T* const to = k < p.size ? p.grad_hx : p.grad_input;
    const int row = first + lane / lanes;
    if (warp == 0 && k < width && row < p.rows && to) {
      kit::Pack<T, N> out;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        A total = 0;
        for (int w = 0; w < small_backward_threads / 32; ++w) total += partial[(w * 32 + lane) * N + n];
        out.value[n] = static_cast<T>(total);
      }
      kit::store(to + row * (k < p.size ? p.size : p.inputs) + (k < p.size ? k : k - p.size), out);
    }
    __syncthreads();  // before the next task overwrites `partial`
  }
}

template <class A, class T, class C>
__device__ void small_bias_gradient(const SmallBackwardParams<T, C>& p, const A* total_grad_gates) {
  for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < 3 * p.size; j += gridDim.x * blockDim.x) {
    A sum = 0;
    for (int r = 0; r < p.rows; ++r) sum += total_grad_gates[r * 3 * p.size + j];
    p.grad_bias[j] = static_cast<T>(sum);
  }
}

template <int N, class T, class C>
__global__ void __launch_bounds__(small_backward_threads, 2) small_backward_kernel(SmallBackwardParams<T, C> p) {
  using A = kit::opmath<T>;
  A *total_grad_gates = kit::shared_memory<A>(), *partial = total_grad_gates + p.rows * 3 * p.size;
  small_gate_gradients(p, total_grad_gates);
  __syncthreads();
  if (p.grad_hx || p.grad_input) small_input_gradients<N>(p, total_grad_gates, partial);
  if (p.grad_weight) small_weight_gradient<N>(p, total_grad_gates);
  if (p.grad_bias) small_bias_gradient(p, total_grad_gates);
}

}  // namespace cppcuda::ops::lltm_cell
