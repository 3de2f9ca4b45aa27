#pragma once

// From tensors to Params, for CPU and CUDA alike: check, allocate, multiply, call run(Params).

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "core/dtype.h"
#include "core/output.h"
#include "core/row_strides.h"
#include "ops/lltm_cell/gemm.h"
#include "ops/lltm_cell/params.h"
#include "ops/lltm_cell/shape.h"

namespace cppcuda::ops::lltm_cell {

template <class T>
Matrix<T> matrix(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.const_data_ptr<T>(), core::row_stride(t, 1), t.stride(-1)};
}

template <class Run>
std::tuple<Tensor, Tensor, Tensor> forward(const std::array<core::Output, 3>& outputs, const Tensor& input,
                                           const Tensor& weight, const Tensor& bias, const Tensor& hx, const Tensor& cx,
                                           Run run) {
  auto [hy, cy, gates] = core::allocate(outputs);
  if (gates.numel() == 0) return {hy, cy, gates};
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  affine(gates, concatenate(hx, input), weight, bias);
  auto call = [&, &hy = hy, &cy = cy, &gates = gates]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    const auto state = matrix<C>(cx);
    const core::Rows rows = core::make_rows(cx, 1, state.rows);
    run(ForwardParams<T, C>{.gates = gates.template const_data_ptr<T>(),
                            .cx = state,
                            .hy = hy.template mutable_data_ptr<T>(),
                            .cy = cy.template mutable_data_ptr<C>(),
                            .rows = rows,
                            .size = cx.size(-1)});
  };
  core::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
  return {hy, cy, gates};
}

// d_gates [G?, B, 3S] and d_cx, where they are defined: from grad_hy and grad_cy, of which one is, and grad_gates.
template <class Run>
void pointwise_backward(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& grad_gates, const Tensor& gates,
                        const Tensor& cx, const Tensor& d_gates, const Tensor& d_cx, Run run) {
  auto call = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    BackwardParams<T, C> p{.grad_hy = matrix<T>(grad_hy),
                           .grad_cy = matrix<C>(grad_cy),
                           .grad_gates = matrix<T>(grad_gates),
                           .gates = matrix<T>(gates),
                           .cx = matrix<C>(cx),
                           .d_gates = d_gates.defined() ? d_gates.mutable_data_ptr<T>() : nullptr,
                           .d_cx = d_cx.defined() ? d_cx.mutable_data_ptr<C>() : nullptr,
                           .rows = {},
                           .size = cx.size(-1)};
    const auto rows_of = [&](const auto& m) { return m.data ? m.rows : p.gates.rows; };
    p.rows =
        core::make_rows(cx, 1, rows_of(p.grad_hy), rows_of(p.grad_cy), rows_of(p.grad_gates), p.gates.rows, p.cx.rows);
    run(p);
  };
  core::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
}

template <class Run>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward(
    const std::array<core::Output, 5>& shapes, const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
    const OptionalTensor& grad_gates, const Tensor& gates, const OptionalTensor& input, const OptionalTensor& weight,
    const OptionalTensor& hx, const Tensor& cx, const c10::List<bool>& output_mask, Run run) {
  const auto outputs = core::allocate(shapes);
  const auto result = core::from_array<std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>>(outputs);
  std::array<Tensor, 5> wanted;
  for (size_t o = 0; o < wanted.size(); ++o) {
    if (output_mask[o]) wanted[o] = outputs[o];
  }
  const auto& [d_input, d_weight, d_bias, d_hx, d_cx] = wanted;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const bool of_state = grad_hy.has_value() || grad_cy.has_value();
  if (gates.numel() == 0 || (!of_state && !grad_gates)) {  // sums over nothing
    for (const Tensor& t : wanted) {
      if (t.defined()) t.zero_();
    }
    return result;
  }
  const bool need_gates = d_input.defined() || d_weight.defined() || d_bias.defined() || d_hx.defined();
  Tensor d_gates;
  if (of_state) {
    if (need_gates) d_gates = at::empty_like(gates, at::MemoryFormat::Contiguous);
    pointwise_backward(core::tensor_or_undefined(grad_hy), core::tensor_or_undefined(grad_cy),
                       need_gates ? core::tensor_or_undefined(grad_gates) : Tensor(), gates, cx, d_gates, d_cx, run);
  } else {
    d_gates = *grad_gates;
    if (d_cx.defined()) d_cx.zero_();
  }
  if (d_input.defined() || d_hx.defined()) input_gradients(d_hx, d_input, d_gates, core::tensor_or_undefined(weight));
  if (d_weight.defined()) {
    weight_gradient(d_weight, d_gates, concatenate(core::tensor_or_undefined(hx), core::tensor_or_undefined(input)));
  }
  if (d_bias.defined()) bias_gradient(d_bias, d_gates);
  return result;
}

}  // namespace cppcuda::ops::lltm_cell
