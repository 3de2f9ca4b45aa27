#include <algorithm>
#include <memory>

#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/lltm_cell/cpu/kernel.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// Below this many elements of the state, four transcendental functions each, a second thread costs more than it saves.
constexpr int64_t grain_size = 1 << 11;

// The same limit for multiplications.
constexpr int64_t products_per_task = 1 << 17;

// Calls f(isa, row, begin, end) on ranges of columns, because even a few rows may have many elements.
template <class F>
void parallel_columns(const kit::CpuContext& cpu, int64_t rows, int64_t size, const F& f) {
  kit::parallel_rows(cpu, rows * size, 1, grain_size, [&](auto isa, int64_t begin, int64_t end) {
    for (int64_t row = begin / size; row * size < end; ++row) {
      f(isa, row, std::max<int64_t>(begin - row * size, 0), std::min(end - row * size, size));
    }
  });
}

template <class T, class C>
void forward(const ForwardParams<T, C>& p, const kit::CpuContext& cpu) {
  parallel_columns(cpu, p.rows.count, p.size, [&](auto isa, int64_t row, int64_t begin, int64_t end) {
    CellKernel<typename decltype(isa)::type, T, C>::forward(p, row, begin, end);
  });
}

template <class T, class C>
void backward(const BackwardParams<T, C>& p, const kit::CpuContext& cpu) {
  parallel_columns(cpu, p.rows.count, p.size, [&](auto isa, int64_t row, int64_t begin, int64_t end) {
    CellKernel<typename decltype(isa)::type, T, C>::backward(p, row, begin, end);
  });
}

template <class T, class C>
void small_forward(const SmallForwardParams<T, C>& p, const kit::CpuContext& cpu) {
  const int64_t in_each = int64_t{3} * p.rows * (p.size + p.inputs);
  kit::parallel_rows(cpu, p.size, in_each, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
    CellKernel<typename decltype(isa)::type, T, C>::small_forward(p, static_cast<int>(begin), static_cast<int>(end));
  });
}

template <class T, class C>
void small_backward(const SmallBackwardParams<T, C>& p, const kit::CpuContext& cpu) {
  const std::unique_ptr<kit::opmath<T>[]> d_gates(new kit::opmath<T>[int64_t{3} * p.rows * p.size]);
  const int64_t in_each = int64_t{3} * p.rows * (p.size + p.inputs);
  kit::parallel_rows(cpu, p.size, in_each, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
    CellKernel<typename decltype(isa)::type, T, C>::small_backward(p, d_gates.get(), static_cast<int>(begin),
                                                                   static_cast<int>(end));
  });
  if (!p.d_hx && !p.d_input) return;
  const int64_t in_row = int64_t{3} * p.size * (p.size + p.inputs);
  kit::parallel_rows(cpu, p.rows, in_row, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
    CellKernel<typename decltype(isa)::type, T, C>::small_backward_inputs(p, d_gates.get(), static_cast<int>(begin),
                                                                          static_cast<int>(end));
  });
}

[[maybe_unused]] const bool added = kit::for_each_dtypes([]<class T, class C>() {
  kit::add_to_table(&forward<T, C>);
  kit::add_to_table(&backward<T, C>);
  kit::add_to_table(&small_forward<T, C>);
  kit::add_to_table(&small_backward<T, C>);
});

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
