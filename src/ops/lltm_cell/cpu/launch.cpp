#include <algorithm>
#include <memory>
#include <type_traits>

#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/lltm_cell/cpu/kernel.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// Below this many elements of the state, four transcendental functions each, a second thread costs more than it saves.
constexpr int64_t grain_size = 1 << 11;

// The same for this many multiplications.
constexpr int64_t products_per_task = 1 << 17;

// Calls f(isa, row, begin, end) on ranges of columns of rows, because few rows may have many elements.
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
  const std::unique_ptr<kit::opmath<T>[]> total_grad_gates(new kit::opmath<T>[int64_t{3} * p.rows * p.size]);
  const int64_t in_each = int64_t{3} * p.rows * (p.size + p.inputs);
  kit::parallel_rows(cpu, p.size, in_each, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
    CellKernel<typename decltype(isa)::type, T, C>::small_backward(p, total_grad_gates.get(), static_cast<int>(begin),
                                                                   static_cast<int>(end));
  });
  if (!p.grad_hx && !p.grad_input) return;
  const int64_t in_row = int64_t{3} * p.size * (p.size + p.inputs);
  kit::parallel_rows(cpu, p.rows, in_row, products_per_task, [&](auto isa, int64_t begin, int64_t end) {
    CellKernel<typename decltype(isa)::type, T, C>::small_backward_inputs(
        p, total_grad_gates.get(), static_cast<int>(begin), static_cast<int>(end));
  });
}

// The recurrent weights [3 size, size] of a sequence in the accumulation type, `row` and `column` apart.
template <class A>
std::unique_ptr<A[]> copy_weights(const auto& p, int64_t row, int64_t column) {
  std::unique_ptr<A[]> copy(new A[3 * p.size * p.size]);
  for (int64_t g = 0; g < 3 * p.size; ++g) {
    for (int64_t k = 0; k < p.size; ++k) copy[g * row + k * column] = static_cast<A>(p.weight[g * p.weight_row + k]);
  }
  return copy;
}

// Calls f(kernel, memory, begin, end) on ranges of rows that are whole tiles; memory has rows_of_memory rows.
template <class T, class C, class F>
void parallel_tiles(const kit::CpuContext& cpu, int64_t rows, int64_t size, int64_t rows_of_memory, const F& f) {
  constexpr int64_t tile = StepsKernel<void, T, C>::tile_rows;
  kit::parallel_rows(cpu, (rows + tile - 1) / tile, 1, 1, [&](auto isa, int64_t begin, int64_t end) {
    const std::unique_ptr<kit::opmath<T>[]> memory(new kit::opmath<T>[rows_of_memory * tile * size]);
    f(StepsKernel<typename decltype(isa)::type, T, C>(), memory.get(), begin * tile, std::min(end * tile, rows));
  });
}

template <class T, class C>
void steps_forward(const StepsForwardParams<T, C>& p, const kit::CpuContext& cpu) {
  const auto transposed = copy_weights<kit::opmath<T>>(p, 1, 3 * p.size);
  parallel_tiles<T, C>(cpu, p.rows, p.size, 1, [&](auto kernel, auto* memory, int64_t begin, int64_t end) {
    kernel.forward(p, transposed.get(), memory, begin, end);
  });
}

template <class T, class C>
void steps_backward(const StepsBackwardParams<T, C>& p, const kit::CpuContext& cpu) {
  const auto weight = copy_weights<kit::opmath<T>>(p, p.size, 1);
  parallel_tiles<T, C>(cpu, p.rows, p.size, 5, [&](auto kernel, auto* memory, int64_t begin, int64_t end) {
    kernel.backward(p, weight.get(), memory, begin, end);
  });
}

template <class T>
void steps_parameters(const StepsParametersParams<T>& p, const kit::CpuContext& cpu) {
  using A = kit::opmath<T>;
  const int64_t gates = 3 * p.size, width = p.size + p.inputs;
  std::unique_ptr<A[]> memory;
  A* sums = nullptr;
  if constexpr (std::is_same_v<T, A>) {
    sums = p.grad_weight;
  } else if (p.grad_weight) {
    memory.reset(new A[gates * width]);
    sums = memory.get();
  }
  if (sums) std::fill_n(sums, gates * width, A(0));
  // A gate that is computed with others or alone has the same bits.
  kit::parallel_rows(cpu, gates, p.steps * p.rows * width, products_per_task,
                     [&](auto isa, int64_t begin, int64_t end) {
                       StepsParametersKernel<typename decltype(isa)::type, T>::run(p, sums, begin, end);
                     });
}

[[maybe_unused]] const bool added = kit::for_each_dtypes([]<class T, class C>() {
  kit::add_to_table(&forward<T, C>);
  kit::add_to_table(&backward<T, C>);
  kit::add_to_table(&small_forward<T, C>);
  kit::add_to_table(&small_backward<T, C>);
  kit::add_to_table(&steps_forward<T, C>);
  kit::add_to_table(&steps_backward<T, C>);
  if constexpr (std::is_same_v<T, C>) kit::add_to_table(&steps_parameters<T>);
});

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
