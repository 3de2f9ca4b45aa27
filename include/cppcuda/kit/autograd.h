#pragma once

// The autograd kernel of every operator, generated from its formula (formula.h).
//
// The kernel works like the generated kernels of torch's own operators (VariableType), so torch.func, forward AD,
// compiled autograd and saved-tensor hooks all work. C++ torch::autograd::Function does not support them.

#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include <array>
#include <string>

#include "cppcuda/kit/node.h"
#include "cppcuda/kit/shape.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// An output that is an input, or shares memory with one, would silently corrupt the graph.
template <size_t I, size_t O>
void check_outputs_are_new(const char* op, const std::array<Tensor, I>& inputs, const std::array<Tensor, O>& outputs) {
  for (const Tensor& in : inputs) {
    for (const Tensor& out : outputs) {
      TORCH_INTERNAL_ASSERT(!in.defined() || !out.is_same(in), op, ": a kernel returned its input");
      TORCH_INTERNAL_ASSERT(
          !in.defined() || !in.has_storage() || !out.has_storage() || !out.storage().is_alias_of(in.storage()), op,
          ": a kernel returned the memory of its input");
    }
  }
}

template <class Formula, class Type = typename Formula::Op::Type>
struct AutogradKernel;

template <class Formula, class R, class... Args>
struct AutogradKernel<Formula, R(Args...)> {
  static R run(c10::DispatchKeySet keys, Args... args) {
    const Inputs<typename Formula::Op> inputs = tensor_arguments(args...);

    NodePtr<FormulaNode<Formula>> node;
    if (torch::autograd::compute_requires_grad(at::TensorList(inputs))) {
      node = make_node<FormulaNode<Formula>>();
      torch::autograd::edge_list edges;
      for (const Tensor& t : inputs) {
        edges.push_back(t.defined() ? torch::autograd::impl::gradient_edge(t) : torch::autograd::Edge());
      }
      node->set_next_edges(std::move(edges));
      node->save_inputs(inputs);
    }

    Outputs<typename Formula::Op> outputs = [&] {
      const at::AutoDispatchBelowADInplaceOrView below;
      return to_array(Formula::Op::redispatch(keys & c10::after_autograd_keyset, args...));
    }();
    check_outputs_are_new(Formula::Op::name, inputs, outputs);

    if (node) {
      node->save_attributes(attributes_of<Formula>(args...));  // of arguments that the kernel has checked
      for (const Tensor& t : outputs) torch::autograd::set_history(t, node);
    }
    set_forward_gradients(inputs, outputs, args...);
    // Outputs are saved after their forward gradients are set; otherwise forward-over-reverse would lose a term.
    if (node) node->save_outputs(outputs);
    return from_array<R>(std::move(outputs));
  }

 private:
  static void set_forward_gradients(const Inputs<typename Formula::Op>& inputs, Outputs<typename Formula::Op>& outputs,
                                    const Args&... args) {
    Inputs<typename Formula::Op> tangents;
    bool any = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!torch::autograd::isFwGradDefined(inputs[i])) continue;
      tangents[i] = inputs[i]._fw_grad(/*level=*/0);
      any = true;
    }
    if (!any) return;
    Saved<Formula> primals{.inputs = {}, .outputs = outputs, .attributes = attributes_of<Formula>(args...)};
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].defined()) primals.inputs[i] = inputs[i]._fw_primal(/*level=*/0);
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Outputs<typename Formula::Op> results = Formula::jvp(tangents, primals);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (results[i].defined() && is_requested(i, args...)) {
        outputs[i]._set_fw_grad(results[i].to(outputs[i].scalar_type()), /*level=*/0,
                                /*is_inplace_op=*/false);
      }
    }
  }
};

// For an operator whose gradient reads values that it does not return. If a gradient may be needed, the operator With
// runs instead, which has a formula and returns these values too. Shape belongs to TheOp, so that errors name TheOp.
template <class TheOp, class With, auto Shape, class Type = typename TheOp::Type>
struct AutogradThrough;

template <class TheOp, class With, auto Shape, class R, class... Args>
struct AutogradThrough<TheOp, With, Shape, R(Args...)> {
  static R run(c10::DispatchKeySet keys, Args... args) {
    const auto inputs = tensor_arguments(args...);
    if (torch::autograd::compute_requires_grad(at::TensorList(inputs)) ||
        std::any_of(inputs.begin(), inputs.end(),
                    [](const Tensor& t) { return torch::autograd::isFwGradDefined(t); })) {
      Shape(args...);
      auto all = to_array(With::call(args...));
      std::array<Tensor, tensor_count<R>> outputs;
      std::move(all.begin(), all.begin() + outputs.size(), outputs.begin());
      return from_array<R>(std::move(outputs));
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    return TheOp::redispatch(keys & c10::after_autograd_keyset, args...);
  }
};

template <class TheOp, class With, auto Shape = kit::Shape<TheOp>::outputs>
auto autograd_through() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((AutogradThrough<TheOp, With, Shape>::run)));
}

// For an operator whose outputs are piecewise constant: their derivatives are zeros.
template <class TheOp, class Type = typename TheOp::Type>
struct WithoutGradient;

template <class TheOp, class R, class... Args>
struct WithoutGradient<TheOp, R(Args...)> {
  static R run(c10::DispatchKeySet keys, Args... args) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return TheOp::redispatch(keys & c10::after_autograd_keyset, args...);
  }
};

template <class TheOp>
auto without_gradient() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((WithoutGradient<TheOp>::run)));
}

// m.impl(Op::name, kit::autograd<Formula>()) in a TORCH_LIBRARY_IMPL of the Autograd key.
template <class Formula>
auto autograd() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((AutogradKernel<Formula>::run)));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
