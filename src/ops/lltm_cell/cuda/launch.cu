#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/cuda/width.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/lltm_cell/cuda/kernel.cuh"
#include "ops/lltm_cell/cuda/launch.h"
#include "ops/lltm_cell/cuda/small_kernel.cuh"
#include "ops/lltm_cell/cuda/steps_kernel.cuh"

namespace cppcuda::ops::lltm_cell {
namespace {

// Values per pack of 16 bytes of the wider type, which may be that of the cell state.
template <class T, class C>
constexpr int pack_size = 16 / (sizeof(T) > sizeof(C) ? sizeof(T) : sizeof(C));

template <class T>
bool in_packs(const RowsOf<T>& m) {
  return !m.data || (m.inner == 1 && kit::is_aligned16(m.data, {m.batch, m.row}));
}

// Whether rows of `size` elements start and end on 16-byte boundaries.
template <class T>
bool in_packs(const T* rows, int64_t size) {
  return kit::is_aligned16(rows, {size});
}

// Whether rows of [hx, input], and of tensors of their widths, are whole packs.
template <class T>
bool small_packs(const CellSizes& sizes, std::initializer_list<const T*> matrices) {
  bool packs = sizes.size % kit::pack_size<T> == 0 && sizes.inputs % kit::pack_size<T> == 0;
  for (const T* m : matrices) packs &= kit::is_aligned16(m, {});
  return packs;
}

template <class Params>
CellSizes sizes_of(const Params& p) {
  return {p.rows, p.inputs, p.size};
}

template <class T, class C>
void small_forward(const SmallForwardParams<T, C>& p, kit::CudaStream& stream) {
  kit::with_width<kit::pack_size<T>>(small_packs(sizes_of(p), {p.input, p.weight, p.hx}), [&](auto n) {
    kit::launch(small_forward_kernel<n, T, C>, small_forward_launch(sizes_of(p)), stream, p);
  });
}

template <class T, class C>
void forward(const ForwardParams<T, C>& p, kit::CudaStream& stream) {
  const bool packs = in_packs(p.gates, p.size) && in_packs(p.hy, p.size) && in_packs(p.cy, p.size) && in_packs(p.cx);
  kit::with_width<pack_size<T, C>>(packs, [&](auto n) {
    const kit::Divisor row_packs = p.size / n;
    kit::launch(forward_kernel<n, T, C>, kit::grid_stride_launch(p.rows.count * row_packs.value()), stream, p,
                row_packs);
  });
}

template <class T, class C>
void small_backward(const SmallBackwardParams<T, C>& p, kit::CudaStream& stream) {
  const bool packs = small_packs<T>(sizes_of(p), {p.input, p.weight, p.hx, p.grad_input, p.grad_weight, p.grad_hx});
  kit::with_width<kit::pack_size<T>>(packs, [&](auto n) {
    const auto shape = small_backward_launch(sizes_of(p), sizeof(kit::opmath<T>), n);
    kit::launch(small_backward_kernel<n, T, C>, shape, stream, p);
  });
}

template <class T, class C>
void backward(const BackwardParams<T, C>& p, kit::CudaStream& stream) {
  // Each of the three gates in a row must start on a 16-byte boundary.
  const bool packs = in_packs(p.gates) && in_packs(p.gates.data, p.size) && in_packs(p.grad_gates) &&
                     in_packs(p.grad_hy) && in_packs(p.grad_cy) && in_packs(p.cx) &&
                     in_packs(p.total_grad_gates, p.size) && in_packs(p.grad_cx, p.size);
  kit::with_width<pack_size<T, C>>(packs, [&](auto n) {
    const auto kernel = !p.grad_cy.data   ? backward_kernel<n, true, false, T, C>
                        : !p.grad_hy.data ? backward_kernel<n, false, true, T, C>
                                          : backward_kernel<n, true, true, T, C>;
    const kit::Divisor row_packs = p.size / n;
    kit::launch(kernel, kit::grid_stride_launch(p.rows.count * row_packs.value()), stream, p, row_packs);
  });
}

// Calls f(std::integral_constant<int, K>) with the smallest number of weights K that is at least `size`.
template <class A, class F>
void with_weights(int64_t size, F f) {
  if (size <= 32) return f(std::integral_constant<int, 32>{});
  if constexpr (max_size_in_registers(sizeof(A)) > 64) {
    if (size > 64) return f(std::integral_constant<int, 128>{});
  }
  f(std::integral_constant<int, 64>{});
}

// row_values: the number of values in shared memory for a row.
template <class A, class Kernel, class Params>
void launch_steps(Kernel* kernel, int64_t row_values, const Params& p, kit::CudaStream& stream) {
  const auto resident = [&](unsigned threads, unsigned bytes) {
    return kit::resident_blocks(kernel, threads, bytes, stream);
  };
  const auto [shape, block_rows] = steps_launch(p.rows, p.size, row_values * sizeof(A), resident);
  kit::launch(kernel, shape, stream, p, block_rows);
}

template <class T, class C>
void steps_forward(const StepsForwardParams<T, C>& p, kit::CudaStream& stream) {
  using A = kit::opmath<T>;
  with_weights<A>(p.size, [&](auto k) { launch_steps<A>(steps_forward_kernel<T, C, k>, k + 4 * p.size, p, stream); });
}

template <class T, class C>
void steps_backward(const StepsBackwardParams<T, C>& p, kit::CudaStream& stream) {
  using A = kit::opmath<T>;
  with_weights<A>(p.size,
                  [&](auto k) { launch_steps<A>(steps_backward_kernel<T, C, k>, 3 * k + 4 * p.size, p, stream); });
}

[[maybe_unused]] const bool added = kit::for_each_dtypes([]<class T, class C>() {
  kit::add_to_table(&forward<T, C>);
  kit::add_to_table(&backward<T, C>);
  kit::add_to_table(&small_forward<T, C>);
  kit::add_to_table(&small_backward<T, C>);
  kit::add_to_table(&steps_forward<T, C>);
  kit::add_to_table(&steps_backward<T, C>);
});

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
