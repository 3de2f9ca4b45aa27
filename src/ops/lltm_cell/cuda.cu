#include <torch/library.h>

#include "core/launch.cuh"
#include "core/width.h"
#include "ops/lltm_cell/adapter.h"
#include "ops/lltm_cell/kernel.cuh"
#include "ops/lltm_cell/launch.h"
#include "ops/lltm_cell/schema.h"
#include "ops/lltm_cell/small_kernel.cuh"

namespace cppcuda::ops::lltm_cell {
namespace {

// Values per access: 16 bytes of the wider type, which may be the cell state's.
template <class T, class C>
constexpr int wide = 16 / (sizeof(T) > sizeof(C) ? sizeof(T) : sizeof(C));

template <class T>
bool in_packs(const Matrix<T>& m) {
  return !m.data || (m.column == 1 && core::is_aligned16(m.data, {m.rows.batch, m.rows.row}));
}

// Whether rows of `size` elements start and end on 16-byte boundaries.
template <class T>
bool in_packs(const T* rows, int64_t size) {
  return core::is_aligned16(rows, {size});
}

// Whether a cell of checked arguments takes one kernel each way; undefined ones are not there.
bool is_small_cell(const CellSizes& sizes, std::initializer_list<Tensor> arguments) {
  for (const Tensor& t : arguments) {
    if (t.defined() && (t.dim() == 3 || !t.is_contiguous())) return false;
  }
  const Tensor& first = *arguments.begin();
  return is_small(sizes, first.scalar_type() == at::kDouble ? 8 : 4);
}

template <class T>
const T* data_of(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <class T>
T* wanted_data(const Tensor& t, bool wanted) {
  return wanted ? t.mutable_data_ptr<T>() : nullptr;
}

// Whether rows of [hx, input] and of what has their width are whole packs.
template <class T>
bool small_packs(const CellSizes& sizes, std::initializer_list<const T*> matrices) {
  bool packs = sizes.size % core::wide<T> == 0 && sizes.inputs % core::wide<T> == 0;
  for (const T* m : matrices) packs &= core::is_aligned16(m, {});
  return packs;
}

std::tuple<Tensor, Tensor, Tensor> small_forward(const std::array<core::Output, 3>& outputs, const CellSizes& sizes,
                                                 const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                 const Tensor& hx, const Tensor& cx) {
  auto result = core::allocate(outputs);
  const auto& [hy, cy, gates] = result;
  auto call = [&, &hy = hy, &cy = cy, &gates = gates]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    const SmallForwardParams<T, C> p{.input = input.const_data_ptr<T>(),
                                     .weight = weight.const_data_ptr<T>(),
                                     .bias = bias.const_data_ptr<T>(),
                                     .hx = hx.const_data_ptr<T>(),
                                     .cx = cx.const_data_ptr<C>(),
                                     .hy = hy.template mutable_data_ptr<T>(),
                                     .gates = gates.template mutable_data_ptr<T>(),
                                     .cy = cy.template mutable_data_ptr<C>(),
                                     .rows = static_cast<int>(sizes.rows),
                                     .inputs = static_cast<int>(sizes.inputs),
                                     .size = static_cast<int>(sizes.size)};
    core::with_width<core::wide<T>>(small_packs(sizes, {p.input, p.weight, p.hx}), [&](auto n) {
      core::launch(small_forward_kernel<n, T, C>, small_forward_launch(sizes), cx.device(), p);
    });
  };
  core::visit_dtypes(input.scalar_type(), cx.scalar_type(), call);
  return {hy, cy, gates};
}

std::tuple<Tensor, Tensor, Tensor> run_forward(const std::array<core::Output, 3>& outputs, const Tensor& input,
                                               const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                               const Tensor& cx) {
  const CellSizes sizes{cx.size(-2), input.size(-1), cx.size(-1)};
  if (is_small_cell(sizes, {input, weight, bias, hx, cx})) {
    return small_forward(outputs, sizes, input, weight, bias, hx, cx);
  }
  auto run = [&]<class T, class C>(const ForwardParams<T, C>& p) {
    const bool packs = in_packs(p.gates, p.size) && in_packs(p.hy, p.size) && in_packs(p.cy, p.size) && in_packs(p.cx);
    core::with_width<wide<T, C>>(packs, [&](auto n) {
      core::launch(forward_kernel<n, T, C>, core::stride_launch(p.rows.count * (p.size / n)), cx.device(), p);
    });
  };
  return forward(outputs, input, weight, bias, hx, cx, run);
}

std::tuple<Tensor, Tensor, Tensor> cell_cuda(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                             const Tensor& hx, const Tensor& cx) {
  return run_forward(cell_shape(input, weight, bias, hx, cx), input, weight, bias, hx, cx);
}

std::tuple<Tensor, Tensor> forward_cuda(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                        const Tensor& cx) {
  auto [hy, cy, gates] = run_forward(outputs("lltm_cell", input, weight, bias, hx, cx), input, weight, bias, hx, cx);
  return {hy, cy};
}

// What backward returns, and the arguments that may not be there.
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

struct Gradients {
  Tensor hy, cy, gates;
};

Five small_backward(const std::array<core::Output, 5>& outputs, const CellSizes& sizes, const Gradients& grad,
                    const Tensor& gates, const Tensor& input, const Tensor& weight, const Tensor& hx, const Tensor& cx,
                    const c10::List<bool>& wanted) {
  const auto result = core::allocate(outputs);
  auto call = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    const SmallBackwardParams<T, C> p{.grad_hy = data_of<T>(grad.hy),
                                      .grad_cy = data_of<C>(grad.cy),
                                      .grad_gates = data_of<T>(grad.gates),
                                      .gates = data_of<T>(gates),
                                      .input = data_of<T>(input),
                                      .weight = data_of<T>(weight),
                                      .hx = data_of<T>(hx),
                                      .cx = data_of<C>(cx),
                                      .d_input = wanted_data<T>(result[0], wanted[0]),
                                      .d_weight = wanted_data<T>(result[1], wanted[1]),
                                      .d_bias = wanted_data<T>(result[2], wanted[2]),
                                      .d_hx = wanted_data<T>(result[3], wanted[3]),
                                      .d_cx = wanted_data<C>(result[4], wanted[4]),
                                      .rows = static_cast<int>(sizes.rows),
                                      .inputs = static_cast<int>(sizes.inputs),
                                      .size = static_cast<int>(sizes.size)};
    const bool packs = small_packs<T>(sizes, {p.input, p.weight, p.hx, p.d_input, p.d_weight, p.d_hx});
    core::with_width<core::wide<T>>(packs, [&](auto n) {
      const auto shape = small_backward_launch(sizes, sizeof(core::opmath<T>), n);
      core::launch(small_backward_kernel<n, T, C>, shape, cx.device(), p);
    });
  };
  core::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
  return core::from_array<Five>(result);
}

Five backward_cuda(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const OptionalTensor& grad_gates,
                   const Tensor& gates, const OptionalTensor& input, const OptionalTensor& weight,
                   const OptionalTensor& hx, const Tensor& cx, c10::List<bool> output_mask) {
  const auto outputs = backward_shape(grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask);
  using core::tensor_or_undefined;
  const Gradients grad{tensor_or_undefined(grad_hy), tensor_or_undefined(grad_cy), tensor_or_undefined(grad_gates)};
  const Tensor x = tensor_or_undefined(input), w = tensor_or_undefined(weight), h = tensor_or_undefined(hx);
  const int64_t inputs = x.defined() ? x.size(-1) : w.defined() ? w.size(-1) - cx.size(-1) : 0;
  const CellSizes sizes{cx.size(-2), inputs, cx.size(-1)};
  if ((grad_hy || grad_cy) && is_small_cell(sizes, {gates, grad.hy, grad.cy, grad.gates, x, w, h, cx})) {
    return small_backward(outputs, sizes, grad, gates, x, w, h, cx, output_mask);
  }
  auto run = [&]<class T, class C>(const BackwardParams<T, C>& p) {
    // A row of gates has three parts: each of them must start on a 16-byte boundary.
    const bool packs = in_packs(p.gates) && in_packs(p.gates.data, p.size) && in_packs(p.grad_gates) &&
                       in_packs(p.grad_hy) && in_packs(p.grad_cy) && in_packs(p.cx) && in_packs(p.d_gates, p.size) &&
                       in_packs(p.d_cx, p.size);
    core::with_width<wide<T, C>>(packs, [&](auto n) {
      const auto kernel = !p.grad_cy.data   ? backward_kernel<n, true, false, T, C>
                          : !p.grad_hy.data ? backward_kernel<n, false, true, T, C>
                                            : backward_kernel<n, true, true, T, C>;
      core::launch(kernel, core::stride_launch(p.rows.count * (p.size / n)), cx.device(), p);
    });
  };
  return backward(outputs, grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask, run);
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Cell::name, TORCH_FN(cell_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
