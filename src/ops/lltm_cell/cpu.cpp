#include <ATen/Parallel.h>
#include <torch/library.h>

#include "core/opmath.h"
#include "ops/lltm_cell/adapter.h"
#include "ops/lltm_cell/math.h"
#include "ops/lltm_cell/schema.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// Below this many elements of the state, four transcendental functions each, a second thread costs more than it saves.
constexpr int64_t elements_per_task = 1 << 11;

// f(row, begin, end) on ranges of columns of rows: few rows are many elements too.
template <class F>
void parallel_columns(int64_t rows, int64_t size, F f) {
  at::parallel_for(0, rows * size, elements_per_task, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin / size; row * size < end; ++row) {
      f(row, std::max<int64_t>(begin - row * size, 0), std::min(end - row * size, size));
    }
  });
}

template <class T, class C>
void forward_columns(const ForwardParams<T, C>& p, int64_t row, int64_t begin, int64_t end) {
  using A = core::opmath<T>;
  const T* gates = p.gates + row * 3 * p.size;
  const C* cx = p.cx.row(p.rows, row);
  T* hy = p.hy + row * p.size;
  C* cy = p.cy + row * p.size;
  for (int64_t s = begin; s < end; ++s) {
    const auto state = cell<A>(static_cast<A>(gates[s]), static_cast<A>(gates[s + p.size]),
                               static_cast<A>(gates[s + 2 * p.size]), static_cast<A>(cx[s * p.cx.column]));
    hy[s] = static_cast<T>(state.hy);
    cy[s] = static_cast<C>(state.cy);
  }
}

template <bool HY, bool CY, class T, class C>
void backward_columns(const BackwardParams<T, C>& p, int64_t row, int64_t begin, int64_t end) {
  using A = core::opmath<T>;
  const T* grad_hy = p.grad_hy.row(p.rows, row);
  const C* grad_cy = p.grad_cy.row(p.rows, row);
  const T* grad_gates = p.grad_gates.row(p.rows, row);
  const T* gates = p.gates.row(p.rows, row);
  const C* cx = p.cx.row(p.rows, row);
  for (int64_t s = begin; s < end; ++s) {
    auto gate = [&](const Matrix<T>& m, const T* of_row, int64_t g) {
      return static_cast<A>(of_row[(s + g * p.size) * m.column]);
    };
    Gradients<A> d =
        cell_backward<HY, CY, A>(HY ? static_cast<A>(grad_hy[s * p.grad_hy.column]) : A(0),
                                 CY ? static_cast<A>(grad_cy[s * p.grad_cy.column]) : A(0), gate(p.gates, gates, 0),
                                 gate(p.gates, gates, 1), gate(p.gates, gates, 2), static_cast<A>(cx[s * p.cx.column]));
    if (grad_gates) {
      d.g0 += gate(p.grad_gates, grad_gates, 0);
      d.g1 += gate(p.grad_gates, grad_gates, 1);
      d.g2 += gate(p.grad_gates, grad_gates, 2);
    }
    if (p.d_gates) {
      T* d_gates = p.d_gates + row * 3 * p.size + s;
      d_gates[0] = static_cast<T>(d.g0);
      d_gates[p.size] = static_cast<T>(d.g1);
      d_gates[2 * p.size] = static_cast<T>(d.g2);
    }
    if (p.d_cx) p.d_cx[row * p.size + s] = static_cast<C>(d.cx);
  }
}

std::tuple<Tensor, Tensor, Tensor> run_forward(const std::array<core::Output, 3>& outputs, const Tensor& input,
                                               const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                               const Tensor& cx) {
  return forward(outputs, input, weight, bias, hx, cx, [](const auto& p) {
    parallel_columns(p.rows.count, p.size,
                     [&](int64_t row, int64_t begin, int64_t end) { forward_columns(p, row, begin, end); });
  });
}

std::tuple<Tensor, Tensor, Tensor> cell_cpu(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                            const Tensor& hx, const Tensor& cx) {
  return run_forward(cell_shape(input, weight, bias, hx, cx), input, weight, bias, hx, cx);
}

std::tuple<Tensor, Tensor> forward_cpu(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                       const Tensor& cx) {
  auto [hy, cy, gates] = run_forward(outputs("lltm_cell", input, weight, bias, hx, cx), input, weight, bias, hx, cx);
  return {hy, cy};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward_cpu(const OptionalTensor& grad_hy,
                                                                const OptionalTensor& grad_cy,
                                                                const OptionalTensor& grad_gates, const Tensor& gates,
                                                                const OptionalTensor& input,
                                                                const OptionalTensor& weight, const OptionalTensor& hx,
                                                                const Tensor& cx, c10::List<bool> output_mask) {
  auto run = []<class T, class C>(const BackwardParams<T, C>& p) {
    const auto columns = !p.grad_cy.data   ? backward_columns<true, false, T, C>
                         : !p.grad_hy.data ? backward_columns<false, true, T, C>
                                           : backward_columns<true, true, T, C>;
    parallel_columns(p.rows.count, p.size,
                     [&](int64_t row, int64_t begin, int64_t end) { columns(p, row, begin, end); });
  };
  const auto outputs = backward_shape(grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask);
  return backward(outputs, grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask, run);
}

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  m.impl(Forward::name, TORCH_FN(forward_cpu));
  m.impl(Cell::name, TORCH_FN(cell_cpu));
  m.impl(Backward::name, TORCH_FN(backward_cpu));
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
