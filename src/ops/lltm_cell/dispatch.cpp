// Converts tensors to the kernels' Params, and calls the matrix products of large cells. A small cell is one kernel.

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/row_strides.h"
#include "cppcuda/kit/shape.h"
#include "ops/lltm_cell/cuda/launch.h"
#include "ops/lltm_cell/gemm.h"
#include "ops/lltm_cell/op.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// Whether our own matrix products take less time than at::mm, which has a large overhead. On the machine of
// docs/performance.md ours took half as long up to this limit and up to four times it. In 16 bits at::mm uses
// instructions that vec.h does not use.
bool is_small_on_cpu(const CellSizes& cell, int64_t value_bytes) {
  const int64_t max_rows = 128, max_products = int64_t{1} << (value_bytes == 2 ? 20 : 25);
  // The first comparisons keep the products below from overflowing.
  return cell.rows <= max_rows && cell.size <= max_products && cell.inputs <= max_products &&
         cell.rows * 3 * cell.size * cell.concatenated() <= max_products;
}

// The largest state whose recurrent weights should stay in the cache of a core over the steps of a sequence.
constexpr int64_t max_size_in_cache = 512;

template <class T>
Matrix<T> matrix(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.const_data_ptr<T>(), kit::row_stride(t, 1), t.stride(-1)};
}

bool takes_small(const CellSizes& sizes, std::initializer_list<Tensor> arguments) {
  for (const Tensor& t : arguments) {
    if (t.defined() && (t.dim() == 3 || !t.is_contiguous())) return false;
  }
  const Tensor& first = *arguments.begin();
  return first.is_cpu() ? is_small_on_cpu(sizes, first.element_size()) : is_small_on_cuda(sizes, first.element_size());
}

template <class T>
const T* data_of(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <class T>
T* mutable_data_of(const Tensor& t) {
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}

std::tuple<Tensor, Tensor, Tensor> run_forward(const std::array<kit::Output, 3>& outputs, const Tensor& input,
                                               const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                               const Tensor& cx) {
  auto [hy, cy, gates] = kit::allocate(outputs);
  if (gates.numel() == 0) return {hy, cy, gates};
  const CellSizes sizes{cx.size(-2), input.size(-1), cx.size(-1)};
  if (takes_small(sizes, {input, weight, bias, hx, cx})) {
    auto call = [&, &hy = hy, &cy = cy, &gates = gates]<class T, class C>(std::type_identity<T>,
                                                                          std::type_identity<C>) {
      kit::run(cx.device(), SmallForwardParams<T, C>{.input = input.const_data_ptr<T>(),
                                                     .weight = weight.const_data_ptr<T>(),
                                                     .bias = bias.const_data_ptr<T>(),
                                                     .hx = hx.const_data_ptr<T>(),
                                                     .cx = cx.const_data_ptr<C>(),
                                                     .hy = hy.template mutable_data_ptr<T>(),
                                                     .gates = gates.template mutable_data_ptr<T>(),
                                                     .cy = cy.template mutable_data_ptr<C>(),
                                                     .rows = static_cast<int>(sizes.rows),
                                                     .inputs = static_cast<int>(sizes.inputs),
                                                     .size = static_cast<int>(sizes.size)});
    };
    kit::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
    return {hy, cy, gates};
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  affine(gates, concatenate(hx, input), weight, bias);
  auto call = [&, &hy = hy, &cy = cy, &gates = gates]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    const auto state = matrix<C>(cx);
    const kit::Rows rows = kit::make_rows(cx, 1, state.rows);
    kit::run(cx.device(), ForwardParams<T, C>{.gates = gates.template const_data_ptr<T>(),
                                              .cx = state,
                                              .hy = hy.template mutable_data_ptr<T>(),
                                              .cy = cy.template mutable_data_ptr<C>(),
                                              .rows = rows,
                                              .size = cx.size(-1)});
  };
  kit::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
  return {hy, cy, gates};
}

std::tuple<Tensor, Tensor, Tensor> cell(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                        const Tensor& cx) {
  return run_forward(kit::Shape<Cell>::outputs(input, weight, bias, hx, cx), input, weight, bias, hx, cx);
}

std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                   const Tensor& cx) {
  auto [hy, cy, gates] =
      run_forward(kit::Shape<Cell>::outputs_as("lltm_cell", input, weight, bias, hx, cx), input, weight, bias, hx, cx);
  return {hy, cy};
}

// total_grad_gates [G?, B, 3S] and grad_cx, where they are defined: from grad_hy and grad_cy, of which one is, and
// grad_gates.
void pointwise_backward(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& grad_gates, const Tensor& gates,
                        const Tensor& cx, const Tensor& total_grad_gates, const Tensor& grad_cx) {
  auto call = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    BackwardParams<T, C> p{
        .grad_hy = matrix<T>(grad_hy),
        .grad_cy = matrix<C>(grad_cy),
        .grad_gates = matrix<T>(grad_gates),
        .gates = matrix<T>(gates),
        .cx = matrix<C>(cx),
        .total_grad_gates = total_grad_gates.defined() ? total_grad_gates.mutable_data_ptr<T>() : nullptr,
        .grad_cx = grad_cx.defined() ? grad_cx.mutable_data_ptr<C>() : nullptr,
        .rows = {},
        .size = cx.size(-1)};
    const auto rows_of = [&](const auto& m) { return m.data ? m.rows : p.gates.rows; };
    p.rows =
        kit::make_rows(cx, 1, rows_of(p.grad_hy), rows_of(p.grad_cy), rows_of(p.grad_gates), p.gates.rows, p.cx.rows);
    kit::run(cx.device(), p);
  };
  kit::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward(const OptionalTensor& grad_hy,
                                                            const OptionalTensor& grad_cy,
                                                            const OptionalTensor& grad_gates, const Tensor& gates,
                                                            const OptionalTensor& input, const OptionalTensor& weight,
                                                            const OptionalTensor& hx, const Tensor& cx,
                                                            c10::List<bool> output_mask) {
  const auto outputs = kit::allocate(
      kit::Shape<Backward>::outputs(grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask));
  const auto result = kit::from_array<std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>>(outputs);
  std::array<Tensor, 5> requested;
  for (size_t o = 0; o < requested.size(); ++o) {
    if (output_mask[o]) requested[o] = outputs[o];
  }
  const auto& [grad_input, grad_weight, grad_bias, grad_hx, grad_cx] = requested;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const bool has_state_gradient = grad_hy.has_value() || grad_cy.has_value();
  if (gates.numel() == 0 || (!has_state_gradient && !grad_gates)) {  // sums over nothing
    for (const Tensor& t : requested) {
      if (t.defined()) t.zero_();
    }
    return result;
  }
  using kit::tensor_or_undefined;
  const Tensor x = tensor_or_undefined(input), w = tensor_or_undefined(weight), h = tensor_or_undefined(hx);
  const Tensor upstream_hy = tensor_or_undefined(grad_hy), upstream_cy = tensor_or_undefined(grad_cy),
               upstream_gates = tensor_or_undefined(grad_gates);
  const CellSizes sizes{cx.size(-2),
                        x.defined()   ? x.size(-1)
                        : w.defined() ? w.size(-1) - cx.size(-1)
                                      : 0,
                        cx.size(-1)};
  if (has_state_gradient && takes_small(sizes, {gates, upstream_hy, upstream_cy, upstream_gates, x, w, h, cx})) {
    auto call = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
      kit::run(cx.device(), SmallBackwardParams<T, C>{.grad_hy = data_of<T>(upstream_hy),
                                                      .grad_cy = data_of<C>(upstream_cy),
                                                      .grad_gates = data_of<T>(upstream_gates),
                                                      .gates = gates.const_data_ptr<T>(),
                                                      .input = data_of<T>(x),
                                                      .weight = data_of<T>(w),
                                                      .hx = data_of<T>(h),
                                                      .cx = cx.const_data_ptr<C>(),
                                                      .grad_input = mutable_data_of<T>(requested[0]),
                                                      .grad_weight = mutable_data_of<T>(requested[1]),
                                                      .grad_bias = mutable_data_of<T>(requested[2]),
                                                      .grad_hx = mutable_data_of<T>(requested[3]),
                                                      .grad_cx = mutable_data_of<C>(requested[4]),
                                                      .rows = static_cast<int>(sizes.rows),
                                                      .inputs = static_cast<int>(sizes.inputs),
                                                      .size = static_cast<int>(sizes.size)});
    };
    kit::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
    return result;
  }
  const bool need_gates = grad_input.defined() || grad_weight.defined() || grad_bias.defined() || grad_hx.defined();
  Tensor total_grad_gates;
  if (has_state_gradient) {
    if (need_gates) total_grad_gates = at::empty_like(gates, at::MemoryFormat::Contiguous);
    pointwise_backward(upstream_hy, upstream_cy, need_gates ? upstream_gates : Tensor(), gates, cx, total_grad_gates,
                       grad_cx);
  } else {
    total_grad_gates = upstream_gates;
    if (grad_cx.defined()) grad_cx.zero_();
  }
  if (grad_input.defined() || grad_hx.defined()) input_gradients(grad_hx, grad_input, total_grad_gates, w);
  if (grad_weight.defined()) weight_gradient(grad_weight, total_grad_gates, concatenate(h, x));
  if (grad_bias.defined()) bias_gradient(grad_bias, total_grad_gates);
  return result;
}

// ---- sequences. Groups are computed one after the other, so the tensors below have none.

// Whether one kernel takes all steps, with the recurrent weights in the cache or, on a GPU, in registers. Otherwise
// each step is a matrix product and a pointwise kernel.
bool is_resident(const Tensor& gates, int64_t size) {
  return size <= (gates.is_cpu() ? max_size_in_cache : max_size_in_registers(gates.element_size()));
}

// [T, B, X] -> [T B, X]
Tensor all_rows(const Tensor& t) { return t.reshape({t.size(0) * t.size(1), t.size(2)}); }

// Calls f(t1, t2, ...) with the tensors of each group.
template <class F, class... Tensors>
void for_each_group(bool has_groups, const F& f, const Tensors&... tensors) {
  if (!has_groups) return f(tensors...);
  const auto groups = std::max({(tensors.defined() ? tensors.size(0) : 0)...});
  for (int64_t g = 0; g < groups; ++g) f((tensors.defined() ? tensors.select(0, g) : tensors)...);
}

template <class T, class C>
void run_steps(const Tensor& weight, const Tensor& h0, const Tensor& c0, const Tensor& output, const Tensor& cells,
               const Tensor& gates) {
  const int64_t steps = gates.size(0), rows = gates.size(1), size = c0.size(-1);
  if (is_resident(gates, size)) {
    kit::run(c0.device(), StepsForwardParams<T, C>{.weight = weight.const_data_ptr<T>(),
                                                   .weight_row = weight.stride(0),
                                                   .h0 = h0.const_data_ptr<T>(),
                                                   .c0 = c0.const_data_ptr<C>(),
                                                   .gates = gates.mutable_data_ptr<T>(),
                                                   .output = output.mutable_data_ptr<T>(),
                                                   .cells = cells.mutable_data_ptr<C>(),
                                                   .steps = steps,
                                                   .rows = rows,
                                                   .size = size});
    return;
  }
  const Tensor recurrent = weight.narrow(1, 0, size).t();
  for (int64_t t = 0; t < steps; ++t) {
    Tensor of_step = gates[t];
    at::addmm_out(of_step, of_step, t == 0 ? h0 : output[t - 1], recurrent);
    const Tensor cx = t == 0 ? c0 : cells[t - 1];
    const auto state = matrix<C>(cx);
    kit::run(c0.device(), ForwardParams<T, C>{.gates = of_step.const_data_ptr<T>(),
                                              .cx = state,
                                              .hy = output[t].mutable_data_ptr<T>(),
                                              .cy = cells[t].mutable_data_ptr<C>(),
                                              .rows = kit::make_rows(cx, 1, state.rows),
                                              .size = size});
  }
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> run_sequence(const std::array<kit::Output, 5>& outputs,
                                                                const Tensor& input, const Tensor& weight,
                                                                const Tensor& bias, const Tensor& h0,
                                                                const Tensor& c0) {
  const auto all = kit::allocate(outputs);
  const auto run = [](const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& h0, const Tensor& c0,
                      const Tensor& output, const Tensor& hn, const Tensor& cn, const Tensor& cells,
                      const Tensor& gates) {
    const int64_t steps = gates.size(0), size = c0.size(-1);
    if (gates.numel() > 0) {
      affine(gates.flatten(0, 1), all_rows(input), weight.narrow(1, size, input.size(-1)), bias);
      const Tensor rows = weight.stride(1) == 1 ? weight : weight.contiguous();
      kit::visit_dtypes(gates.scalar_type(), c0.scalar_type(),
                        [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
                          run_steps<T, C>(rows, h0.contiguous(), c0.contiguous(), output, cells, gates);
                        });
    }
    hn.copy_(steps == 0 ? h0 : output[steps - 1]);
    cn.copy_(steps == 0 ? c0 : cells[steps - 1]);
  };
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  for_each_group(input.dim() == 4, run, input, weight, bias, h0, c0, all[0], all[1], all[2], all[3], all[4]);
  return kit::from_array<std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>>(all);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> steps(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                         const Tensor& h0, const Tensor& c0) {
  return run_sequence(kit::Shape<Steps>::outputs(input, weight, bias, h0, c0), input, weight, bias, h0, c0);
}

std::tuple<Tensor, Tensor, Tensor> sequence(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                            const Tensor& h0, const Tensor& c0) {
  auto [output, hn, cn, cells, gates] =
      run_sequence(kit::Shape<Steps>::outputs_as("lltm", input, weight, bias, h0, c0), input, weight, bias, h0, c0);
  return {output, hn, cn};
}

// The gradients of the outputs of _lltm; some may be undefined.
struct SequenceGradients {
  Tensor output, hn, cn, cells, gates;
};

// Sets total_grad_gates [T, B, 3S], and the gradients of the first state where they are defined.
template <class T, class C>
void run_steps_backward(const SequenceGradients& grad, const Tensor& gates, const Tensor& cells, const Tensor& weight,
                        const Tensor& c0, const Tensor& total_grad_gates, const Tensor& grad_h0,
                        const Tensor& grad_c0) {
  const int64_t steps = gates.size(0), rows = gates.size(1), size = c0.size(-1);
  if (is_resident(gates, size)) {
    kit::run(c0.device(), StepsBackwardParams<T, C>{.weight = weight.const_data_ptr<T>(),
                                                    .weight_row = weight.stride(0),
                                                    .grad_output = data_of<T>(grad.output),
                                                    .grad_hn = data_of<T>(grad.hn),
                                                    .grad_cn = data_of<C>(grad.cn),
                                                    .grad_cells = data_of<C>(grad.cells),
                                                    .grad_gates = data_of<T>(grad.gates),
                                                    .gates = gates.const_data_ptr<T>(),
                                                    .cells = cells.const_data_ptr<C>(),
                                                    .c0 = c0.const_data_ptr<C>(),
                                                    .total_grad_gates = total_grad_gates.mutable_data_ptr<T>(),
                                                    .grad_h0 = mutable_data_of<T>(grad_h0),
                                                    .grad_c0 = mutable_data_of<C>(grad_c0),
                                                    .steps = steps,
                                                    .rows = rows,
                                                    .size = size});
    return;
  }
  const Tensor recurrent = weight.narrow(1, 0, size);
  Tensor h = grad.hn.defined() ? grad.hn : at::zeros({rows, size}, gates.options());
  Tensor c = grad.cn.defined() ? grad.cn : at::zeros({rows, size}, c0.options());
  for (int64_t t = steps - 1; t >= 0; --t) {
    if (grad.output.defined()) h = h + grad.output[t];
    if (grad.cells.defined()) c = c + grad.cells[t];
    const Tensor before = at::empty({rows, size}, c0.options());
    pointwise_backward(h, c, grad.gates.defined() ? grad.gates[t] : Tensor(), gates[t], t == 0 ? c0 : cells[t - 1],
                       total_grad_gates[t], before);
    c = before;
    h = at::mm(total_grad_gates[t], recurrent);
  }
  if (grad_h0.defined()) grad_h0.copy_(h);
  if (grad_c0.defined()) grad_c0.copy_(c);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> steps_backward(
    const OptionalTensor& grad_output, const OptionalTensor& grad_hn, const OptionalTensor& grad_cn,
    const OptionalTensor& grad_cells, const OptionalTensor& grad_gates, const Tensor& gates, const Tensor& cells,
    const OptionalTensor& output, const OptionalTensor& input, const Tensor& weight, const OptionalTensor& h0,
    const Tensor& c0, c10::List<bool> output_mask) {
  const auto outputs = kit::allocate(kit::Shape<StepsBackward>::outputs(
      grad_output, grad_hn, grad_cn, grad_cells, grad_gates, gates, cells, output, input, weight, h0, c0, output_mask));
  std::array<Tensor, 5> requested;
  for (size_t o = 0; o < requested.size(); ++o) {
    if (output_mask[o]) requested[o] = outputs[o];
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto run = [](const Tensor& grad_output, const Tensor& grad_hn, const Tensor& grad_cn, const Tensor& grad_cells,
                      const Tensor& grad_gates, const Tensor& gates, const Tensor& cells, const Tensor& output,
                      const Tensor& input, const Tensor& weight, const Tensor& h0, const Tensor& c0,
                      const Tensor& grad_input, const Tensor& grad_weight, const Tensor& grad_bias,
                      const Tensor& grad_h0, const Tensor& grad_c0) {
    const int64_t steps = gates.size(0), size = c0.size(-1);
    if (gates.numel() == 0) {  // sums over nothing, and without steps the state is h0 and c0
      for (const Tensor& t : {grad_input, grad_weight, grad_bias}) {
        if (t.defined()) t.zero_();
      }
      const auto pass = [&](const Tensor& from, const Tensor& to) {
        if (to.defined()) steps == 0 && from.defined() ? to.copy_(from) : to.zero_();
      };
      pass(grad_hn, grad_h0);
      return pass(grad_cn, grad_c0);
    }
    const auto contiguous = [](const Tensor& t) { return t.defined() ? t.contiguous() : t; };
    const Tensor total = at::empty(gates.sizes(), gates.options());
    kit::visit_dtypes(gates.scalar_type(), c0.scalar_type(),
                      [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
                        run_steps_backward<T, C>({contiguous(grad_output), contiguous(grad_hn), contiguous(grad_cn),
                                                  contiguous(grad_cells), contiguous(grad_gates)},
                                                 contiguous(gates), contiguous(cells),
                                                 weight.stride(1) == 1 ? weight : weight.contiguous(), contiguous(c0),
                                                 total, grad_h0, grad_c0);
                      });
    const Tensor rows = all_rows(total);
    if (grad_input.defined()) input_gradients(Tensor(), grad_input.flatten(0, 1), rows, weight);
    if (!grad_weight.defined() && !grad_bias.defined()) return;
    if (gates.is_cpu() && is_resident(gates, size)) {
      const Tensor x = contiguous(input), h = contiguous(h0), all_h = contiguous(output);
      const auto call = [&]<class T>(std::type_identity<T>) {
        kit::run(c0.device(), StepsParametersParams<T>{.total_grad_gates = total.const_data_ptr<T>(),
                                                       .h0 = data_of<T>(h),
                                                       .output = data_of<T>(all_h),
                                                       .input = data_of<T>(x),
                                                       .grad_weight = mutable_data_of<T>(grad_weight),
                                                       .grad_bias = mutable_data_of<T>(grad_bias),
                                                       .steps = steps,
                                                       .rows = gates.size(1),
                                                       .inputs = weight.size(1) - size,
                                                       .size = size});
      };
      return kit::visit_dtype(gates.scalar_type(), call);
    }
    if (grad_weight.defined()) {
      const Tensor states = at::cat({h0.unsqueeze(0), output.narrow(0, 0, steps - 1)});
      weight_gradient(grad_weight, rows, at::cat({all_rows(states), all_rows(input)}, 1));
    }
    if (grad_bias.defined()) bias_gradient(grad_bias, rows);
  };
  using kit::tensor_or_undefined;
  for_each_group(gates.dim() == 4, run, tensor_or_undefined(grad_output), tensor_or_undefined(grad_hn),
                 tensor_or_undefined(grad_cn), tensor_or_undefined(grad_cells), tensor_or_undefined(grad_gates), gates,
                 cells, tensor_or_undefined(output), tensor_or_undefined(input), weight, tensor_or_undefined(h0), c0,
                 requested[0], requested[1], requested[2], requested[3], requested[4]);
  return kit::from_array<std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>>(outputs);
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<Cell, cell>(m);
  kit::implement<Backward, backward>(m);
  kit::implement<Sequence, sequence>(m);
  kit::implement<Steps, steps>(m);
  kit::implement<StepsBackward, steps_backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
