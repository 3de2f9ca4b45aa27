// The CPU loops of a sequence. This is a file of its own, because gcc limits how much inlining may enlarge a file.

#include <type_traits>

#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/math.h"
#include "cppcuda/kit/cpu/vec.h"
#include "ops/lltm_cell/cpu/kernel.h"
#include "ops/lltm_cell/math.h"

namespace cppcuda::ops::lltm_cell {
inline namespace CPPCUDA_ISA {

using kit::for_groups;
using kit::for_vectors;
using kit::Vec;

// The registers of columns in a tile of 8 rows. AVX-512 has twice as many registers as the other instruction sets; with
// AVX2 one column took 0.8 of the time of two or three (two threads, 128 steps of 16/32/128).
template <class V>
constexpr int steps_columns = sizeof(V) == 64 ? 3 : 1;

// finish(m, column, count, start(m, column, count) + sum_k left[m, k] right[k]) for M rows of `columns` values. Rows of
// right are contiguous; values of left are left_m and left_k apart.
template <int M, class Left, class Right, class Start, class Finish>
CPPCUDA_INLINE void multiply_add(const Left* left, int64_t left_m, int64_t left_k, const Right* right, int64_t reduced,
                                 int64_t columns, Start start, Finish finish) {
  using A = kit::opmath<Left>;
  using V = Vec<A>;
  for_groups<V, steps_columns<V>>(columns, [&]<int W>(int64_t column, std::integral_constant<int, W>, auto count) {
    V sums[M][W];
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < W; ++n) sums[m][n] = start(m, column + n * V::lanes, count);
    }
    for (int64_t k = 0; k < reduced; ++k) {
      V from_right[W];
      for (int n = 0; n < W; ++n) from_right[n] = V::load(right + k * columns + column + n * V::lanes, count);
      for (int m = 0; m < M; ++m) {
        const V factor(static_cast<A>(left[m * left_m + k * left_k]));
        for (int n = 0; n < W; ++n) sums[m][n] = fma(factor, from_right[n], sums[m][n]);
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < W; ++n) finish(m, column + n * V::lanes, count, sums[m][n]);
    }
  });
}

template <class T, class C>
struct StepLoops {
  using A = kit::opmath<T>;
  using V = Vec<A>;

  // Copies rows to the accumulation type.
  template <class From>
  CPPCUDA_INLINE static void widen(const From* from, int64_t n, A* to) {
    for_vectors<V>(n, [&](int64_t i, auto count) { V::load(from + i, count).store(to + i, count); });
  }

  // M rows at all steps. h: M rows of memory for the state.
  template <int M>
  CPPCUDA_INLINE static void forward(const StepsForwardParams<T, C>& p, const A* transposed, int64_t row, A* h) {
    const int64_t size = p.size, gates = 3 * size;
    widen(p.h0 + row * size, M * size, h);
    const C* cx = p.c0 + row * size;
    for (int64_t t = 0; t < p.steps; ++t) {
      const int64_t first = t * p.rows + row;
      T* const of_step = p.gates + first * gates;
      multiply_add<M>(
          h, size, 1, transposed, size, gates,
          [&](int m, int64_t i, auto count) { return V::load(of_step + m * gates + i, count); },
          [&](int m, int64_t i, auto count, V sum) { sum.store(of_step + m * gates + i, count); });
      T* const hy = p.output + first * size;
      C* const cy = p.cells + first * size;
      for (int m = 0; m < M; ++m) {
        const T* const row_gates = of_step + m * gates;
        for_vectors<V>(size, [&](int64_t i, auto count) {
          const auto state = cell<V>(V::load(row_gates + i, count), V::load(row_gates + size + i, count),
                                     V::load(row_gates + 2 * size + i, count), V::load(cx + m * size + i, count));
          state.hy.store(hy + m * size + i, count);
          state.cy.store(cy + m * size + i, count);
        });
      }
      widen(hy, M * size, h);
      cx = cy;
    }
  }

  // Memory for M rows: of the gradients of the gates, of the states from later steps, and of the cell states.
  struct Memory {
    A *gates, *h, *c;
  };

  template <int M>
  CPPCUDA_INLINE static void backward(const StepsBackwardParams<T, C>& p, const A* weight, int64_t row,
                                      const Memory& memory) {
    const int64_t size = p.size, gates = 3 * size;
    const auto start = [&](const auto* from, A* to) {
      for_vectors<V>(M * size, [&](int64_t i, auto count) {
        (from ? V::load(from + row * size + i, count) : V(0)).store(to + i, count);
      });
    };
    start(p.grad_hn, memory.h);
    start(p.grad_cn, memory.c);
    bool has_h = p.grad_hn, has_c = p.grad_cn;
    for (int64_t t = p.steps - 1; t >= 0; --t) {
      const int64_t first = t * p.rows + row;
      has_h |= p.grad_output != nullptr;
      has_c |= p.grad_cells != nullptr;
      for (int m = 0; m < M; ++m) {
        const C* const cx = t == 0 ? p.c0 + (row + m) * size : p.cells + (first - p.rows + m) * size;
        const auto step = [&]<bool HY, bool CY>(std::bool_constant<HY>, std::bool_constant<CY>) {
          backward_row<HY, CY>(p, first + m, cx, memory.gates + m * gates, memory.h + m * size, memory.c + m * size);
        };
        constexpr std::true_type yes;
        constexpr std::false_type no;
        (has_h && has_c) ? step(yes, yes) : has_h ? step(yes, no) : step(no, yes);
      }
      // A gradient of the gates of a step alone reaches the state before it, too.
      has_h = has_c = true;
      multiply_add<M>(
          memory.gates, gates, 1, weight, gates, size, [](int, int64_t, auto) { return V(0); },
          [&](int m, int64_t i, auto count, V sum) { sum.store(memory.h + m * size + i, count); });
    }
    const auto finish = [&](const A* from, auto* to) {
      if (!to) return;
      for_vectors<V>(M * size,
                     [&](int64_t i, auto count) { V::load(from + i, count).store(to + row * size + i, count); });
    };
    finish(memory.h, p.grad_h0);
    finish(memory.c, p.grad_c0);
  }

  // A row of a step. h and c: the gradients from later steps; c becomes that of the state before.
  template <bool HY, bool CY>
  CPPCUDA_INLINE static void backward_row(const StepsBackwardParams<T, C>& p, int64_t row, const C* cx, A* grad_gates,
                                          const A* h, A* c) {
    const int64_t size = p.size;
    const T* const gates = p.gates + row * 3 * size;
    T* const total = p.total_grad_gates + row * 3 * size;
    for_vectors<V>(size, [&](int64_t i, auto count) {
      V grad_hy = V::load(h + i, count), grad_cy = V::load(c + i, count);
      if (p.grad_output) grad_hy += V::load(p.grad_output + row * size + i, count);
      if (p.grad_cells) grad_cy += V::load(p.grad_cells + row * size + i, count);
      Gradients<V> d =
          cell_backward<HY, CY, V>(grad_hy, grad_cy, V::load(gates + i, count), V::load(gates + size + i, count),
                                   V::load(gates + 2 * size + i, count), V::load(cx + i, count));
      if (p.grad_gates) {
        const T* const from = p.grad_gates + row * 3 * size + i;
        d.g0 += V::load(from, count);
        d.g1 += V::load(from + size, count);
        d.g2 += V::load(from + 2 * size, count);
      }
      const V of_gates[3] = {d.g0, d.g1, d.g2};
      for (int g = 0; g < 3; ++g) {
        of_gates[g].store(grad_gates + g * size + i, count);
        of_gates[g].store(total + g * size + i, count);
      }
      d.cx.store(c + i, count);
    });
  }
};

// Calls f(row, M) for groups of M rows.
template <int M, class F>
CPPCUDA_INLINE void for_row_tiles(int64_t begin, int64_t end, F f) {
  int64_t row = begin;
  for (; row + M <= end; row += M) f(row, std::integral_constant<int, M>());
  if constexpr (M > 1) for_row_tiles<M / 2>(row, end, f);
}

}  // namespace CPPCUDA_ISA

template <class Isa, class T, class C>
CPPCUDA_FLATTEN void StepsKernel<Isa, T, C>::forward(const StepsForwardParams<T, C>& p, const A* transposed, A* memory,
                                                     int64_t begin, int64_t end) {
  for_row_tiles<tile_rows>(
      begin, end, [&](int64_t row, auto rows) { StepLoops<T, C>::template forward<rows>(p, transposed, row, memory); });
}

template <class Isa, class T, class C>
CPPCUDA_FLATTEN void StepsKernel<Isa, T, C>::backward(const StepsBackwardParams<T, C>& p, const A* weight, A* memory,
                                                      int64_t begin, int64_t end) {
  for_row_tiles<tile_rows>(begin, end, [&](int64_t row, auto rows) {
    A *const h = memory, *const c = h + tile_rows * p.size;
    StepLoops<T, C>::template backward<rows>(p, weight, row, {c + tile_rows * p.size, h, c});
  });
}

template <class Isa, class T>
CPPCUDA_FLATTEN void StepsParametersKernel<Isa, T>::run(const StepsParametersParams<T>& p, A* sums, int64_t begin,
                                                        int64_t end) {
  // Rows that are read again for each tile of gates, so that they stay in the second-level cache.
  constexpr int64_t block = 512, tile = 8;
  const int64_t all = p.steps * p.rows, gates = 3 * p.size, width = p.size + p.inputs;
  if (p.grad_weight) {
    for (int64_t first = 0; first < all; first += block) {
      const int64_t last = first + block < all ? first + block : all;
      for_row_tiles<tile>(begin, end, [&](int64_t gate, auto several) {
        const auto add = [&](const T* right, int64_t columns, int64_t from, int64_t to, A* into) {
          if (from >= to) return;
          A* const rows = into + gate * width;
          multiply_add<several>(
              p.total_grad_gates + from * gates + gate, 1, gates, right, to - from, columns,
              [&](int m, int64_t i, auto count) { return Vec<A>::load(rows + m * width + i, count); },
              [&](int m, int64_t i, auto count, Vec<A> sum) { sum.store(rows + m * width + i, count); });
        };
        // The state before the first step is h0, that before another one the output of the step before it.
        const int64_t later = first > p.rows ? first : p.rows;
        add(p.h0 + first * p.size, p.size, first, last < p.rows ? last : p.rows, sums);
        add(p.output + (later - p.rows) * p.size, p.size, later, last, sums);
        add(p.input + first * p.inputs, p.inputs, first, last, sums + p.size);
      });
    }
    if constexpr (!std::is_same_v<T, A>) {
      for_vectors<Vec<A>>((end - begin) * width, [&](int64_t i, auto count) {
        Vec<A>::load(sums + begin * width + i, count).store(p.grad_weight + begin * width + i, count);
      });
    }
  }
  if (!p.grad_bias) return;
  for_vectors<Vec<A>>(end - begin, [&](int64_t i, auto count) {
    Vec<A> sum = 0;
    for (int64_t r = 0; r < all; ++r) sum += Vec<A>::load(p.total_grad_gates + r * gates + begin + i, count);
    sum.store(p.grad_bias + begin + i, count);
  });
}

template struct StepsKernel<kit::Isa, double, double>;
template struct StepsKernel<kit::Isa, float, float>;
template struct StepsKernel<kit::Isa, c10::Half, c10::Half>;
template struct StepsKernel<kit::Isa, c10::Half, float>;
template struct StepsKernel<kit::Isa, c10::BFloat16, c10::BFloat16>;
template struct StepsKernel<kit::Isa, c10::BFloat16, float>;
template struct StepsParametersKernel<kit::Isa, double>;
template struct StepsParametersKernel<kit::Isa, float>;
template struct StepsParametersKernel<kit::Isa, c10::Half>;
template struct StepsParametersKernel<kit::Isa, c10::BFloat16>;

}  // namespace cppcuda::ops::lltm_cell
