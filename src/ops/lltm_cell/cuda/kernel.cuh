#pragma once

// A thread computes N adjacent elements of a row of the state from the same columns of its three gates.

#include "cppcuda/kit/cuda/fast_float.cuh"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/math/divide.h"
#include "cppcuda/kit/math/opmath.h"
#include "ops/lltm_cell/math.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {

// The position of pack number `index`: N columns from `column` on.
struct PackPosition {
  int64_t row, column;
};

template <int N>
__device__ PackPosition pack_position(int64_t index, const kit::Divisor& row_packs) {
  const auto [row, pack] = row_packs.divide(index);
  return {row, pack * N};
}

template <int N, class T, class C>
__global__ void __launch_bounds__(kit::threads_per_block)
    forward_kernel(ForwardParams<T, C> p, kit::Divisor row_packs) {
  using A = kit::elementwise_math<T, C>;
  const int64_t packs = p.rows.count * row_packs.value(), step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; index < packs; index += step) {
    const auto [row, s] = pack_position<N>(index, row_packs);
    const T* gates = p.gates + row * 3 * p.size + s;
    const C* cx_row = p.cx.at(p.rows, row);
    const auto g0 = kit::load<N>(gates), g1 = kit::load<N>(gates + p.size), g2 = kit::load<N>(gates + 2 * p.size);
    const auto cx = kit::load_strided<N>(cx_row, s, p.cx.inner);
    kit::Pack<T, N> hy;
    kit::Pack<C, N> cy;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const auto state =
          cell<A>(kit::widen<A>(g0, n), kit::widen<A>(g1, n), kit::widen<A>(g2, n), kit::widen<A>(cx, n));
      hy.value[n] = static_cast<T>(state.hy);
      cy.value[n] = static_cast<C>(state.cy);
    }
    kit::store(p.hy + row * p.size + s, hy);
    kit::store(p.cy + row * p.size + s, cy);
  }
}

// HY, CY: whether the gradients of hy and cy are given. Six blocks per SM: with more registers the compiler starts to
// compute before it has issued all loads. float64 needs those registers.
template <int N, bool HY, bool CY, class T, class C>
__global__ void __launch_bounds__(kit::threads_per_block, sizeof(T) < 8 ? 6 : 4)
    backward_kernel(BackwardParams<T, C> p, kit::Divisor row_packs) {
  using A = kit::elementwise_math<T, C>;
  const int64_t packs = p.rows.count * row_packs.value(), step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; index < packs; index += step) {
    const auto [row, s] = pack_position<N>(index, row_packs);
    kit::Pack<T, N> g[3], grad_gates[3], total_grad_gates[3], grad_hy;
    kit::Pack<C, N> grad_cy, grad_cx;
    // All addresses come first: finding a row may take a division and a branch, which wait for loads already issued.
    const T *gates = p.gates.at(p.rows, row), *grad_gates_row = p.grad_gates.at(p.rows, row);
    const C* cx_row = p.cx.at(p.rows, row);
    const T* hy_row = HY ? p.grad_hy.at(p.rows, row) : nullptr;
    const C* cy_row = CY ? p.grad_cy.at(p.rows, row) : nullptr;
#pragma unroll
    for (int k = 0; k < 3; ++k) g[k] = kit::load_strided<N>(gates, s + k * p.size, p.gates.inner);
    const auto cx = kit::load_strided<N>(cx_row, s, p.cx.inner);
    if constexpr (HY) grad_hy = kit::load_strided<N>(hy_row, s, p.grad_hy.inner);
    if constexpr (CY) grad_cy = kit::load_strided<N>(cy_row, s, p.grad_cy.inner);
    if (grad_gates_row) {
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        grad_gates[k] = kit::load_strided<N>(grad_gates_row, s + k * p.size, p.grad_gates.inner);
      }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      A gh(0), gc(0);
      if constexpr (HY) gh = kit::widen<A>(grad_hy, n);
      if constexpr (CY) gc = kit::widen<A>(grad_cy, n);
      const auto d = cell_backward<HY, CY, A>(gh, gc, kit::widen<A>(g[0], n), kit::widen<A>(g[1], n),
                                              kit::widen<A>(g[2], n), kit::widen<A>(cx, n));
      A sum[3] = {d.g0, d.g1, d.g2};
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        if (grad_gates_row) sum[k] += kit::widen<A>(grad_gates[k], n);
        total_grad_gates[k].value[n] = static_cast<T>(sum[k]);
      }
      grad_cx.value[n] = static_cast<C>(d.cx);
    }
    if (p.total_grad_gates) {
#pragma unroll
      for (int k = 0; k < 3; ++k) kit::store(p.total_grad_gates + (row * 3 + k) * p.size + s, total_grad_gates[k]);
    }
    if (p.grad_cx) kit::store(p.grad_cx + row * p.size + s, grad_cx);
  }
}

}  // namespace cppcuda::ops::lltm_cell
