#include "ops/lltm_cell/cpu/kernel.h"

#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/math.h"
#include "cppcuda/kit/cpu/vec.h"
#include "ops/lltm_cell/math.h"

namespace cppcuda::ops::lltm_cell {
inline namespace CPPCUDA_ISA {

using kit::for_groups;
using kit::for_vectors;
using kit::Vec;

// The tile of a matrix product whose sums are held in registers.
constexpr int tile_rows = 4;
template <class V>
constexpr int tile_columns = V::lanes / tile_rows > 1 ? V::lanes / tile_rows : 2;

// sums[m][n] += x[m] . w[n], for vectors of k values, in an order that does not depend on the tile.
template <int M, int N, class V, class T>
CPPCUDA_INLINE void add_dots(const T* x, int64_t x_row, const T* w, int64_t w_row, int64_t k, V (&sums)[M][N]) {
  for_vectors<V>(k, [&](int64_t i, auto count) {
    V from_w[N];
    for (int n = 0; n < N; ++n) from_w[n] = V::load(w + n * w_row + i, count);
    for (int m = 0; m < M; ++m) {
      const V from_x = V::load(x + m * x_row + i, count);
      for (int n = 0; n < N; ++n) sums[m][n] += from_x * from_w[n];
    }
  });
}

// gates[m][n] = [hx, input][m] . weight[n] + bias[n]
template <int M, int N, class T, class C>
CPPCUDA_INLINE void gates_tile(const SmallForwardParams<T, C>& p, int row, int gate) {
  using A = kit::opmath<T>;
  using V = Vec<A>;
  const int64_t width = p.size + p.inputs;
  const T* weight = p.weight + gate * width;
  V sums[M][N];
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) sums[m][n] = 0;
  }
  add_dots(p.hx + int64_t{row} * p.size, p.size, weight, width, p.size, sums);
  add_dots(p.input + int64_t{row} * p.inputs, p.inputs, weight + p.size, width, p.inputs, sums);
  T* gates = p.gates + int64_t{row} * 3 * p.size + gate;
  A results[M * N];
  V::sums(&sums[0][0], std::integral_constant<int, M * N>(), results);
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      gates[m * 3 * p.size + n] = static_cast<T>(results[m * N + n] + static_cast<A>(p.bias[gate + n]));
    }
  }
}

template <int M, class T, class C>
CPPCUDA_INLINE void gates_of_rows(const SmallForwardParams<T, C>& p, int row, int begin, int end) {
  constexpr int N = tile_columns<Vec<kit::opmath<T>>>;
  int gate = begin;
  for (; gate + N <= end; gate += N) gates_tile<M, N>(p, row, gate);
  for (; gate < end; ++gate) gates_tile<M, 1>(p, row, gate);
}

// out[m] = sum_r left[m, r] right[r] for M rows of `columns` values.
template <int M, class T, class A>
CPPCUDA_INLINE void multiply_rows(const A* left, int64_t left_m, int64_t left_r, const T* right, int64_t right_row,
                                  int64_t reduced, int64_t columns, T* out, int64_t out_row) {
  using V = Vec<A>;
  for_groups<V, tile_columns<V>>(columns, [&]<int W>(int64_t column, std::integral_constant<int, W>, auto count) {
    V sums[M][W];
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < W; ++n) sums[m][n] = 0;
    }
    for (int64_t r = 0; r < reduced; ++r) {
      V from_right[W];
      for (int n = 0; n < W; ++n) from_right[n] = V::load(right + r * right_row + column + n * V::lanes, count);
      for (int m = 0; m < M; ++m) {
        const V factor(left[m * left_m + r * left_r]);
        for (int n = 0; n < W; ++n) sums[m][n] += factor * from_right[n];
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < W; ++n) sums[m][n].store(out + m * out_row + column + n * V::lanes, count);
    }
  });
}

template <class T, class A>
CPPCUDA_INLINE void multiply(const A* left, int64_t left_m, int64_t left_r, const T* right, int64_t right_row,
                             int64_t reduced, int64_t rows, int64_t columns, T* out, int64_t out_row) {
  int64_t m = 0;
  for (; m + tile_rows <= rows; m += tile_rows) {
    multiply_rows<tile_rows>(left + m * left_m, left_m, left_r, right, right_row, reduced, columns, out + m * out_row,
                             out_row);
  }
  for (; m < rows; ++m) {
    multiply_rows<1>(left + m * left_m, left_m, left_r, right, right_row, reduced, columns, out + m * out_row, out_row);
  }
}

// The `count` values of a row from column s on, of a matrix that may be missing.
template <class V, class T, class Count>
CPPCUDA_INLINE V load(const RowsOf<T>& matrix, const T* row, int64_t s, Count count) {
  if (row == nullptr) return 0;
  return matrix.inner == 1 ? V::load(row + s, count) : V::load(row + s * matrix.inner, matrix.inner, count);
}

template <class T, class C>
struct CellColumns {
  using A = kit::opmath<T>;
  using V = Vec<A>;

  CPPCUDA_INLINE static void forward(const T* gates, const RowsOf<C>& states, const C* cx, T* hy, C* cy, int64_t size,
                                     int64_t begin, int64_t end) {
    for_vectors<V>(end - begin, [&](int64_t i, auto count) {
      const int64_t s = begin + i;
      const auto state = cell<V>(V::load(gates + s, count), V::load(gates + size + s, count),
                                 V::load(gates + 2 * size + s, count), load<V>(states, cx, s, count));
      state.hy.store(hy + s, count);
      state.cy.store(cy + s, count);
    });
  }

  // D is the type that the gradients of the gates are stored in.
  template <bool HY, bool CY, class D>
  CPPCUDA_INLINE static void backward(const BackwardParams<T, C>& p, D* total_grad_gates, int64_t row, int64_t begin,
                                      int64_t end) {
    const T* grad_hy = p.grad_hy.at(p.rows, row);
    const C* grad_cy = p.grad_cy.at(p.rows, row);
    const T* grad_gates = p.grad_gates.at(p.rows, row);
    const T* gates = p.gates.at(p.rows, row);
    const C* cx = p.cx.at(p.rows, row);
    for_vectors<V>(end - begin, [&](int64_t i, auto count) {
      const int64_t s = begin + i;
      auto gate = [&](const RowsOf<T>& matrix, const T* of_row, int g) {
        return load<V>(matrix, of_row, s + g * p.size, count);
      };
      Gradients<V> d = cell_backward<HY, CY, V>(
          load<V>(p.grad_hy, grad_hy, s, count), load<V>(p.grad_cy, grad_cy, s, count), gate(p.gates, gates, 0),
          gate(p.gates, gates, 1), gate(p.gates, gates, 2), load<V>(p.cx, cx, s, count));
      if (grad_gates) {
        d.g0 += gate(p.grad_gates, grad_gates, 0);
        d.g1 += gate(p.grad_gates, grad_gates, 1);
        d.g2 += gate(p.grad_gates, grad_gates, 2);
      }
      if (total_grad_gates) {
        D* to = total_grad_gates + row * 3 * p.size + s;
        d.g0.store(to, count);
        d.g1.store(to + p.size, count);
        d.g2.store(to + 2 * p.size, count);
      }
      if (p.grad_cx) d.cx.store(p.grad_cx + row * p.size + s, count);
    });
  }

  template <class D>
  CPPCUDA_INLINE static void backward_of(const BackwardParams<T, C>& p, D* total_grad_gates, int64_t row, int64_t begin,
                                         int64_t end) {
    !p.grad_cy.data   ? backward<true, false>(p, total_grad_gates, row, begin, end)
    : !p.grad_hy.data ? backward<false, true>(p, total_grad_gates, row, begin, end)
                      : backward<true, true>(p, total_grad_gates, row, begin, end);
  }
};

// May be missing.
template <class T>
CPPCUDA_INLINE RowsOf<T> contiguous(const T* data, int64_t width) {
  return {.data = data, .row = data ? width : 0};
}

}  // namespace CPPCUDA_ISA

template <class Isa, class T, class C>
CPPCUDA_FLATTEN void CellKernel<Isa, T, C>::forward(const ForwardParams<T, C>& p, int64_t row, int64_t begin,
                                                    int64_t end) {
  CellColumns<T, C>::forward(p.gates + row * 3 * p.size, p.cx, p.cx.at(p.rows, row), p.hy + row * p.size,
                             p.cy + row * p.size, p.size, begin, end);
}

template <class Isa, class T, class C>
CPPCUDA_FLATTEN void CellKernel<Isa, T, C>::backward(const BackwardParams<T, C>& p, int64_t row, int64_t begin,
                                                     int64_t end) {
  CellColumns<T, C>::backward_of(p, p.total_grad_gates, row, begin, end);
}

template <class Isa, class T, class C>
CPPCUDA_FLATTEN void CellKernel<Isa, T, C>::small_forward(const SmallForwardParams<T, C>& p, int begin, int end) {
  for (int g = 0; g < 3; ++g) {
    int row = 0;
    for (; row + tile_rows <= p.rows; row += tile_rows) {
      gates_of_rows<tile_rows>(p, row, g * p.size + begin, g * p.size + end);
    }
    for (; row < p.rows; ++row) gates_of_rows<1>(p, row, g * p.size + begin, g * p.size + end);
  }
  const RowsOf<C> cx = contiguous(p.cx, p.size);
  for (int64_t row = 0; row < p.rows; ++row) {
    CellColumns<T, C>::forward(p.gates + row * 3 * p.size, cx, p.cx + row * p.size, p.hy + row * p.size,
                               p.cy + row * p.size, p.size, begin, end);
  }
}

template <class Isa, class T, class C>
CPPCUDA_FLATTEN void CellKernel<Isa, T, C>::small_backward(const SmallBackwardParams<T, C>& p, A* total_grad_gates,
                                                           int begin, int end) {
  const BackwardParams<T, C> all{.grad_hy = contiguous(p.grad_hy, p.size),
                                 .grad_cy = contiguous(p.grad_cy, p.size),
                                 .grad_gates = contiguous(p.grad_gates, 3 * p.size),
                                 .gates = contiguous(p.gates, 3 * p.size),
                                 .cx = contiguous(p.cx, p.size),
                                 .total_grad_gates = nullptr,
                                 .grad_cx = p.grad_cx,
                                 .rows = {p.rows, p.rows},
                                 .size = p.size};
  for (int64_t row = 0; row < p.rows; ++row) CellColumns<T, C>::backward_of(all, total_grad_gates, row, begin, end);
  for (int g = 0; g < 3; ++g) {
    const int64_t first = g * p.size + begin, width = p.size + p.inputs, gates = 3 * p.size;
    if (p.grad_weight) {
      T* out = p.grad_weight + first * width;
      multiply(total_grad_gates + first, 1, gates, p.hx, p.size, p.rows, end - begin, p.size, out, width);
      multiply(total_grad_gates + first, 1, gates, p.input, p.inputs, p.rows, end - begin, p.inputs, out + p.size,
               width);
    }
    if (p.grad_bias) {
      for_vectors<Vec<A>>(end - begin, [&](int64_t i, auto count) {
        Vec<A> sum = 0;
        for (int64_t row = 0; row < p.rows; ++row)
          sum += Vec<A>::load(total_grad_gates + row * gates + first + i, count);
        sum.store(p.grad_bias + first + i, count);
      });
    }
  }
}

template <class Isa, class T, class C>
CPPCUDA_FLATTEN void CellKernel<Isa, T, C>::small_backward_inputs(const SmallBackwardParams<T, C>& p,
                                                                  const A* total_grad_gates, int begin, int end) {
  const int64_t gates = 3 * p.size, width = p.size + p.inputs, row = begin;
  const A* left = total_grad_gates + row * gates;
  if (p.grad_hx)
    multiply(left, gates, 1, p.weight, width, gates, end - begin, p.size, p.grad_hx + row * p.size, p.size);
  if (p.grad_input) {
    multiply(left, gates, 1, p.weight + p.size, width, gates, end - begin, p.inputs, p.grad_input + row * p.inputs,
             p.inputs);
  }
}

template struct CellKernel<kit::Isa, double, double>;
template struct CellKernel<kit::Isa, float, float>;
template struct CellKernel<kit::Isa, c10::Half, c10::Half>;
template struct CellKernel<kit::Isa, c10::Half, float>;
template struct CellKernel<kit::Isa, c10::BFloat16, c10::BFloat16>;
template struct CellKernel<kit::Isa, c10::BFloat16, float>;

}  // namespace cppcuda::ops::lltm_cell
