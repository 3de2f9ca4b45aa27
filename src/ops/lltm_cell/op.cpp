#include "ops/lltm_cell/op.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <cppcuda/ops/lltm.h>
#include <cppcuda/ops/lltm_cell.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "ops/lltm_cell/cuda/launch.h"
#include "ops/lltm_cell/gemm.h"
#include "ops/lltm_cell/params.h"
#include "ops/lltm_cell/sequence_formulas.h"

namespace cppcuda {

std::tuple<Tensor, Tensor> lltm_cell(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                     const Tensor& cx) {
  return kit::call<ops::lltm_cell::Forward>(input, weight, bias, hx, cx);
}

std::tuple<Tensor, Tensor, Tensor> lltm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& h0,
                                        const Tensor& c0) {
  return kit::call<ops::lltm_cell::Sequence>(input, weight, bias, h0, c0);
}

namespace ops::lltm_cell {
namespace {

// ---- kernels. The matrix products of large cells are ATen's; a small cell is one kernel.

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

bool takes_small(const CellSizes& sizes, std::initializer_list<Tensor> arguments) {
  for (const Tensor& t : arguments) {
    if (t.defined() && (t.dim() == 3 || !t.is_contiguous())) return false;
  }
  const Tensor& first = *arguments.begin();
  return first.is_cpu() ? is_small_on_cpu(sizes, first.element_size()) : is_small_on_cuda(sizes, first.element_size());
}

// Memory for the gates of states [..., S], for operators that do not return them.
Tensor gates_of(const Tensor& states) {
  c10::SymDimVector sizes(states.sym_sizes());
  sizes.back() = sizes.back() * 3;
  return kit::allocate({sizes, states.options()});
}

template <template <class, class> class Params, class TheOp>
void run_small(const kit::Args<TheOp>& args, const kit::Outputs<TheOp>& out, const CellSizes& sizes,
               at::ScalarType dtype) {
  const auto call = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    kit::run(args["cx"].device(),
             kit::fill<Params<T, C>>(args, out, static_cast<int>(sizes.rows), static_cast<int>(sizes.inputs),
                                     static_cast<int>(sizes.size)));
  };
  kit::visit_dtypes(dtype, args["cx"].scalar_type(), call);
}

void forward(const kit::Args<Cell>& args, const kit::Outputs<Cell>& out) {
  kit::Outputs<Cell> all = out;
  if (!all["gates"].defined()) all["gates"] = gates_of(out["hy"]);
  const auto& [hy, cy, gates] = static_cast<const std::array<Tensor, 3>&>(all);
  if (gates.numel() == 0) return;
  const Tensor &input = args["input"], &weight = args["weight"], &bias = args["bias"], &hx = args["hx"],
               &cx = args["cx"];
  const CellSizes sizes{cx.size(-2), input.size(-1), cx.size(-1)};
  if (takes_small(sizes, {input, weight, bias, hx, cx})) {
    return run_small<SmallForwardParams>(args, all, sizes, gates.scalar_type());
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  affine(gates, concatenate(hx, input), weight, bias);
  auto call = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    const auto state = kit::rows_of<C>(cx, 1);
    kit::run(cx.device(), ForwardParams<T, C>{.gates = gates.const_data_ptr<T>(),
                                              .cx = state,
                                              .hy = hy.mutable_data_ptr<T>(),
                                              .cy = cy.mutable_data_ptr<C>(),
                                              .rows = kit::make_rows(cx, 1, state),
                                              .size = cx.size(-1)});
  };
  kit::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
}

// total_grad_gates [G?, B, 3S] and grad_cx, where they are defined: from grad_hy and grad_cy, of which one is, and
// grad_gates.
void pointwise_backward(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& grad_gates, const Tensor& gates,
                        const Tensor& cx, const Tensor& total_grad_gates, const Tensor& grad_cx) {
  auto call = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) {
    BackwardParams<T, C> p{.grad_hy = kit::rows_of<T>(grad_hy, 1),
                           .grad_cy = kit::rows_of<C>(grad_cy, 1),
                           .grad_gates = kit::rows_of<T>(grad_gates, 1),
                           .gates = kit::rows_of<T>(gates, 1),
                           .cx = kit::rows_of<C>(cx, 1),
                           .total_grad_gates = kit::mutable_data_of<T>(total_grad_gates),
                           .grad_cx = kit::mutable_data_of<C>(grad_cx),
                           .rows = {},
                           .size = cx.size(-1)};
    p.rows = kit::make_rows(cx, 1, p.grad_hy, p.grad_cy, p.grad_gates, p.gates, p.cx);
    kit::run(cx.device(), p);
  };
  kit::visit_dtypes(gates.scalar_type(), cx.scalar_type(), call);
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  const Tensor &upstream_hy = args["grad_hy"], &upstream_cy = args["grad_cy"], &upstream_gates = args["grad_gates"],
               &gates = args["gates"], &x = args["input"], &w = args["weight"], &h = args["hx"], &cx = args["cx"];
  const auto& [grad_input, grad_weight, grad_bias, grad_hx, grad_cx] = static_cast<const std::array<Tensor, 5>&>(out);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const bool has_state_gradient = upstream_hy.defined() || upstream_cy.defined();
  if (gates.numel() == 0 || (!has_state_gradient && !upstream_gates.defined())) {  // sums over nothing
    for (const Tensor& t : out) {
      if (t.defined()) t.zero_();
    }
    return;
  }
  const CellSizes sizes{cx.size(-2),
                        x.defined()   ? x.size(-1)
                        : w.defined() ? w.size(-1) - cx.size(-1)
                                      : 0,
                        cx.size(-1)};
  if (has_state_gradient && takes_small(sizes, {gates, upstream_hy, upstream_cy, upstream_gates, x, w, h, cx})) {
    return run_small<SmallBackwardParams>(args, out, sizes, gates.scalar_type());
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
}

// ---- sequences. Groups are computed one after the other.

// The tensors of a call, or of one of its groups, with the names of the declarations. What the call does not have is
// undefined.
struct SequenceTensors {
  Tensor input{}, weight{}, bias{}, h0{}, c0{};
  Tensor output{}, hn{}, cn{}, cells{}, gates{};
  Tensor grad_output{}, grad_hn{}, grad_cn{}, grad_cells{}, grad_gates{};
  Tensor grad_input{}, grad_weight{}, grad_bias{}, grad_h0{}, grad_c0{};

  int64_t size() const { return c0.size(-1); }

  template <class F>
  void for_each(const F& f) {
    for (Tensor* t : {&input,      &weight,     &bias,        &h0,          &c0,      &output,  &hn,
                      &cn,         &cells,      &gates,       &grad_output, &grad_hn, &grad_cn, &grad_cells,
                      &grad_gates, &grad_input, &grad_weight, &grad_bias,   &grad_h0, &grad_c0}) {
      if (t->defined()) f(*t);
    }
  }
};

// Calls f with the tensors of each group.
template <class F>
void for_each_group(SequenceTensors all, const F& f) {
  if (all.gates.dim() == 3) return f(all);
  int64_t groups = 0;
  all.for_each([&](const Tensor& t) { groups = std::max(groups, t.size(0)); });
  for (int64_t g = 0; g < groups; ++g) {
    SequenceTensors group = all;
    group.for_each([&](Tensor& t) { t = t.select(0, g); });
    f(group);
  }
}

// Whether one kernel takes all steps, with the recurrent weights in the cache or, on a GPU, in registers. Otherwise
// each step is a matrix product and a pointwise kernel.
bool is_resident(const SequenceTensors& s) {
  return s.size() <= (s.gates.is_cpu() ? max_size_in_cache : max_size_in_registers(s.gates.element_size()));
}

// [T, B, X] -> [T B, X]
Tensor all_rows(const Tensor& t) { return t.reshape({t.size(0) * t.size(1), t.size(2)}); }

Tensor contiguous(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

Tensor with_contiguous_rows(const Tensor& t) { return t.stride(1) == 1 ? t : t.contiguous(); }

// Sets output and cells from h0 and c0, which are contiguous, and gates, which hold the part of the input.
template <class T, class C>
void run_steps(const SequenceTensors& s) {
  const int64_t steps = s.gates.size(0), size = s.size();
  if (is_resident(s)) {
    kit::run(s.c0.device(), StepsForwardParams<T, C>{.weight = s.weight.const_data_ptr<T>(),
                                                     .weight_row = s.weight.stride(0),
                                                     .h0 = s.h0.const_data_ptr<T>(),
                                                     .c0 = s.c0.const_data_ptr<C>(),
                                                     .gates = s.gates.mutable_data_ptr<T>(),
                                                     .output = s.output.mutable_data_ptr<T>(),
                                                     .cells = s.cells.mutable_data_ptr<C>(),
                                                     .steps = steps,
                                                     .rows = s.gates.size(1),
                                                     .size = size});
    return;
  }
  const Tensor recurrent = s.weight.narrow(1, 0, size).t();
  for (int64_t t = 0; t < steps; ++t) {
    Tensor of_step = s.gates[t];
    at::addmm_out(of_step, of_step, t == 0 ? s.h0 : s.output[t - 1], recurrent);
    const Tensor cx = t == 0 ? s.c0 : s.cells[t - 1];
    const auto state = kit::rows_of<C>(cx, 1);
    kit::run(s.c0.device(), ForwardParams<T, C>{.gates = of_step.const_data_ptr<T>(),
                                                .cx = state,
                                                .hy = s.output[t].mutable_data_ptr<T>(),
                                                .cy = s.cells[t].mutable_data_ptr<C>(),
                                                .rows = kit::make_rows(cx, 1, state),
                                                .size = size});
  }
}

void run_group(SequenceTensors s) {
  const int64_t steps = s.gates.size(0);
  if (s.gates.numel() > 0) {
    affine(s.gates.flatten(0, 1), all_rows(s.input), s.weight.narrow(1, s.size(), s.input.size(-1)), s.bias);
    s.weight = with_contiguous_rows(s.weight), s.h0 = s.h0.contiguous(), s.c0 = s.c0.contiguous();
    kit::visit_dtypes(s.gates.scalar_type(), s.c0.scalar_type(),
                      [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) { run_steps<T, C>(s); });
  }
  s.hn.copy_(steps == 0 ? s.h0 : s.output[steps - 1]);
  s.cn.copy_(steps == 0 ? s.c0 : s.cells[steps - 1]);
}

void sequence(const kit::Args<Steps>& args, const kit::Outputs<Steps>& out) {
  const Tensor &output = out["output"], &c0 = args["c0"];
  const bool is_whole = out["cells"].defined();
  const Tensor cells = is_whole ? out["cells"] : kit::allocate({c10::SymDimVector(output.sym_sizes()), c0.options()});
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  for_each_group({.input = args["input"],
                  .weight = args["weight"],
                  .bias = args["bias"],
                  .h0 = args["h0"],
                  .c0 = c0,
                  .output = output,
                  .hn = out["hn"],
                  .cn = out["cn"],
                  .cells = cells,
                  .gates = is_whole ? out["gates"] : gates_of(output)},
                 run_group);
}

// Sets total_grad_gates [T, B, 3S], and the gradients of the first state where they are requested.
template <class T, class C>
void run_steps_backward(const SequenceTensors& s, const Tensor& total_grad_gates) {
  const int64_t steps = s.gates.size(0), rows = s.gates.size(1), size = s.size();
  if (is_resident(s)) {
    kit::run(s.c0.device(), StepsBackwardParams<T, C>{.weight = s.weight.const_data_ptr<T>(),
                                                      .weight_row = s.weight.stride(0),
                                                      .grad_output = kit::data_of<T>(s.grad_output),
                                                      .grad_hn = kit::data_of<T>(s.grad_hn),
                                                      .grad_cn = kit::data_of<C>(s.grad_cn),
                                                      .grad_cells = kit::data_of<C>(s.grad_cells),
                                                      .grad_gates = kit::data_of<T>(s.grad_gates),
                                                      .gates = s.gates.const_data_ptr<T>(),
                                                      .cells = s.cells.const_data_ptr<C>(),
                                                      .c0 = s.c0.const_data_ptr<C>(),
                                                      .total_grad_gates = total_grad_gates.mutable_data_ptr<T>(),
                                                      .grad_h0 = kit::mutable_data_of<T>(s.grad_h0),
                                                      .grad_c0 = kit::mutable_data_of<C>(s.grad_c0),
                                                      .steps = steps,
                                                      .rows = rows,
                                                      .size = size});
    return;
  }
  const Tensor recurrent = s.weight.narrow(1, 0, size);
  Tensor h = s.grad_hn.defined() ? s.grad_hn : at::zeros({rows, size}, s.gates.options());
  Tensor c = s.grad_cn.defined() ? s.grad_cn : at::zeros({rows, size}, s.c0.options());
  for (int64_t t = steps - 1; t >= 0; --t) {
    if (s.grad_output.defined()) h = h + s.grad_output[t];
    if (s.grad_cells.defined()) c = c + s.grad_cells[t];
    const Tensor before = at::empty({rows, size}, s.c0.options());
    pointwise_backward(h, c, s.grad_gates.defined() ? s.grad_gates[t] : Tensor(), s.gates[t],
                       t == 0 ? s.c0 : s.cells[t - 1], total_grad_gates[t], before);
    c = before;
    h = at::mm(total_grad_gates[t], recurrent);
  }
  if (s.grad_h0.defined()) s.grad_h0.copy_(h);
  if (s.grad_c0.defined()) s.grad_c0.copy_(c);
}

// Sets the requested gradients of weight and bias.
void parameter_gradients(const SequenceTensors& s, const Tensor& total_grad_gates) {
  if (!s.grad_weight.defined() && !s.grad_bias.defined()) return;
  const int64_t steps = s.gates.size(0), size = s.size();
  if (s.gates.is_cpu() && is_resident(s)) {
    const Tensor x = contiguous(s.input), h = contiguous(s.h0), all_h = contiguous(s.output);
    const auto call = [&]<class T>(std::type_identity<T>) {
      kit::run(s.c0.device(), StepsParametersParams<T>{.total_grad_gates = total_grad_gates.const_data_ptr<T>(),
                                                       .h0 = kit::data_of<T>(h),
                                                       .output = kit::data_of<T>(all_h),
                                                       .input = kit::data_of<T>(x),
                                                       .grad_weight = kit::mutable_data_of<T>(s.grad_weight),
                                                       .grad_bias = kit::mutable_data_of<T>(s.grad_bias),
                                                       .steps = steps,
                                                       .rows = s.gates.size(1),
                                                       .inputs = s.weight.size(1) - size,
                                                       .size = size});
    };
    return kit::visit_dtype(s.gates.scalar_type(), call);
  }
  const Tensor rows = all_rows(total_grad_gates);
  if (s.grad_weight.defined()) {
    const Tensor states = at::cat({s.h0.unsqueeze(0), s.output.narrow(0, 0, steps - 1)});
    weight_gradient(s.grad_weight, rows, at::cat({all_rows(states), all_rows(s.input)}, 1));
  }
  if (s.grad_bias.defined()) bias_gradient(s.grad_bias, rows);
}

void run_group_backward(const SequenceTensors& s) {
  if (s.gates.numel() == 0) {  // sums over nothing, and without steps the state is h0 and c0
    for (const Tensor& t : {s.grad_input, s.grad_weight, s.grad_bias}) {
      if (t.defined()) t.zero_();
    }
    const auto pass = [&](const Tensor& from, const Tensor& to) {
      if (to.defined()) s.gates.size(0) == 0 && from.defined() ? to.copy_(from) : to.zero_();
    };
    pass(s.grad_hn, s.grad_h0);
    return pass(s.grad_cn, s.grad_c0);
  }
  SequenceTensors ready = s;
  ready.weight = with_contiguous_rows(s.weight);
  for (Tensor* t : {&ready.grad_output, &ready.grad_hn, &ready.grad_cn, &ready.grad_cells, &ready.grad_gates,
                    &ready.gates, &ready.cells, &ready.c0}) {
    *t = contiguous(*t);
  }
  const Tensor total = at::empty(s.gates.sizes(), s.gates.options());
  kit::visit_dtypes(
      s.gates.scalar_type(), s.c0.scalar_type(),
      [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>) { run_steps_backward<T, C>(ready, total); });
  if (s.grad_input.defined()) input_gradients(Tensor(), s.grad_input.flatten(0, 1), all_rows(total), s.weight);
  parameter_gradients(s, total);
}

void steps_backward(const kit::Args<StepsBackward>& args, const kit::Outputs<StepsBackward>& out) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  for_each_group({.input = args["input"],
                  .weight = args["weight"],
                  .h0 = args["h0"],
                  .c0 = args["c0"],
                  .output = args["output"],
                  .cells = args["cells"],
                  .gates = args["gates"],
                  .grad_output = args["grad_output"],
                  .grad_hn = args["grad_hn"],
                  .grad_cn = args["grad_cn"],
                  .grad_cells = args["grad_cells"],
                  .grad_gates = args["grad_gates"],
                  .grad_input = out["grad(input)"],
                  .grad_weight = out["grad(weight)"],
                  .grad_bias = out["grad(bias)"],
                  .grad_h0 = out["grad(h0)"],
                  .grad_c0 = out["grad(c0)"]},
                 run_group_backward);
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward>(m).implement<forward>().differentiate<CellFormula>();
  kit::define<Backward>(m).implement<backward>().differentiate<CellBackwardFormula>();
  kit::define<Sequence>(m).implement<sequence>().differentiate<StepsFormula>();
  kit::define<StepsBackward>(m).implement<steps_backward>().differentiate<StepsBackwardFormula>();
}

}  // namespace
}  // namespace ops::lltm_cell
}  // namespace cppcuda
