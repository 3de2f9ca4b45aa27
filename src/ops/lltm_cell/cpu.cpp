#include <torch/library.h>

#include <algorithm>
#include <memory>

#include "core/parallel.h"
#include "ops/lltm_cell/adapter.h"
#include "ops/lltm_cell/cpu_kernel.h"
#include "ops/lltm_cell/schema.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// Below this many elements of the state, four transcendental functions each, a second thread costs more than it saves.
constexpr int64_t elements_per_task = 1 << 11;

// And below this many multiplications.
constexpr int64_t products_per_task = 1 << 17;

// f(isa, row, begin, end) on ranges of columns of rows: few rows are many elements too.
template <class F>
void parallel_columns(int64_t rows, int64_t size, F f) {
  core::parallel_rows(rows * size, 1, elements_per_task, [&](auto isa, int64_t begin, int64_t end) {
    for (int64_t row = begin / size; row * size < end; ++row) {
      f(isa, row, std::max<int64_t>(begin - row * size, 0), std::min(end - row * size, size));
    }
  });
}

// Whether products of our own take less time than at::mm, which starts slowly. On the machine of docs/performance.md
// ours took half as long up to the bound, and up to four times it; in 16 bits at::mm has instructions that vec.h does
// not use.
bool is_small(const CellSizes& cell, int64_t value_bytes) {
  const int64_t most_rows = 128, most_products = int64_t{1} << (value_bytes == 2 ? 20 : 25);
  // Factor by factor: sizes may be anything.
  return cell.rows <= most_rows && cell.size <= most_products && cell.inputs <= most_products &&
         cell.rows * 3 * cell.size * cell.concatenated() <= most_products;
}

std::tuple<Tensor, Tensor, Tensor> run_forward(const std::array<core::Output, 3>& outputs, const Tensor& input,
                                               const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                               const Tensor& cx) {
  auto run_small = []<class T, class C>(const SmallForwardParams<T, C>& p) {
    const int64_t in_each = int64_t{3} * p.rows * (p.size + p.inputs);
    core::parallel_rows(p.size, in_each, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
      CellKernel<typename decltype(isa)::type, T, C>::small_forward(p, static_cast<int>(begin), static_cast<int>(end));
    });
  };
  auto run = []<class T, class C>(const ForwardParams<T, C>& p) {
    parallel_columns(p.rows.count, p.size, [&](auto isa, int64_t row, int64_t begin, int64_t end) {
      CellKernel<typename decltype(isa)::type, T, C>::forward(p, row, begin, end);
    });
  };
  return forward(outputs, input, weight, bias, hx, cx, is_small, run_small, run);
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
  auto run_small = []<class T, class C>(const SmallBackwardParams<T, C>& p) {
    const std::unique_ptr<core::opmath<T>[]> d_gates(new core::opmath<T>[int64_t{3} * p.rows * p.size]);
    const int64_t in_each = int64_t{3} * p.rows * (p.size + p.inputs);
    core::parallel_rows(p.size, in_each, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
      CellKernel<typename decltype(isa)::type, T, C>::small_backward(p, d_gates.get(), static_cast<int>(begin),
                                                                     static_cast<int>(end));
    });
    if (!p.d_hx && !p.d_input) return;
    const int64_t in_row = int64_t{3} * p.size * (p.size + p.inputs);
    core::parallel_rows(p.rows, in_row, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
      CellKernel<typename decltype(isa)::type, T, C>::small_backward_inputs(p, d_gates.get(), static_cast<int>(begin),
                                                                            static_cast<int>(end));
    });
  };
  auto run = []<class T, class C>(const BackwardParams<T, C>& p) {
    parallel_columns(p.rows.count, p.size, [&](auto isa, int64_t row, int64_t begin, int64_t end) {
      CellKernel<typename decltype(isa)::type, T, C>::backward(p, row, begin, end);
    });
  };
  const auto outputs = backward_shape(grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask);
  return backward(outputs, grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask, is_small, run_small,
                  run);
}

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  m.impl(Forward::name, TORCH_FN(forward_cpu));
  m.impl(Cell::name, TORCH_FN(cell_cpu));
  m.impl(Backward::name, TORCH_FN(backward_cpu));
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
