#pragma once

// The autograd kernel of every operator, generated from its formula (formula.h).
//
// The kernel works like the generated kernels of torch's own operators (VariableType), so torch.func, forward AD,
// compiled autograd and saved-tensor hooks all work. C++ torch::autograd::Function does not support them.
//
// The kernels' bodies and the Node (src/kit/autograd.cpp) are compiled once, for formulas without their types; torch's
// autograd headers are included there only.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <array>
#include <span>
#include <variant>
#include <vector>

#include "cppcuda/kit/formula.h"
#include "cppcuda/kit/shape.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// An argument that is not a tensor, or an attribute of a formula's own. Compiled autograd can pack these types.
template <class... Ts>
using OneOrNone = std::variant<OutputMask, BoolList, Ts..., std::optional<Ts>..., std::optional<at::Device>>;
using Attribute = OneOrNone<bool, int64_t, double, c10::SymInt, std::string, at::Scalar, std::vector<int64_t>,
                            std::vector<double>, std::vector<c10::SymInt>, std::vector<std::string>, at::ScalarType,
                            at::Layout, at::MemoryFormat, at::Generator>;

// Saved<Formula> without its types.
struct SavedCall {
  c10::SmallVector<Tensor, 8> inputs, outputs;
  std::span<const Attribute> attributes;
};

// A formula without its types. Its functions move from the tensors that they get, and `result` has room for the
// gradients of all inputs, or for the tangents of all outputs.
struct AnyFormula {
  const char* name;  // of the operator
  size_t inputs, outputs;
  const Reads* reads;
  void (*vjp)(Tensor* grads, SavedCall& saved, const bool* need, Tensor* result);
  void (*jvp)(Tensor* tangents, SavedCall& saved, Tensor* result);
};

// The body of an autograd kernel: below() computes `outputs`, and attributes() returns those of the call.
void run_differentiable(const AnyFormula& formula, at::ArrayRef<Tensor> inputs, at::ArrayRef<Tensor> outputs,
                        c10::function_ref<void()> below, c10::function_ref<std::vector<Attribute>()> attributes);

// Whether a tensor argument requires a gradient or has a tangent.
template <class... Args>
bool is_differentiated(const Args&... args) {
  const bool requires_grad = at::GradMode::is_enabled();
  const auto of = [requires_grad]<class Arg>(const Arg& arg) {
    if constexpr (is_tensor_argument<Arg>) {
      const Tensor* const t = address_of(arg);
      return t != nullptr && t->defined() &&
             ((requires_grad && t->requires_grad()) || t->_fw_grad(/*level=*/0).defined());
    } else {
      return false;
    }
  };
  return (of(args) || ...);
}

template <class Formula>
struct WithoutTypes {
  using Op = typename Formula::Op;
  using Size = Counts<typename Op::Type>;

  template <class Tensors>
  static Tensors typed(Tensor* from) {
    Tensors result;
    std::move(from, from + result.size(), result.begin());
    return result;
  }

  static Saved<Formula> typed(SavedCall& call) {
    Saved<Formula> saved{typed<Inputs<Op>>(call.inputs.data()), typed<Outputs<Op>>(call.outputs.data()), {}};
    [[maybe_unused]] const Attribute* from = call.attributes.data();
    std::apply([&](auto&... a) { ((a = std::get<std::remove_reference_t<decltype(a)>>(*from++)), ...); },
               saved.attributes);
    return saved;
  }

  static void vjp(Tensor* grads, SavedCall& call, const bool* need, Tensor* result) {
    Need<Op> needed;
    std::copy_n(need, needed.size(), needed.begin());
    Inputs<Op> gradients = Formula::vjp(typed<Outputs<Op>>(grads), typed(call), needed);
    std::move(gradients.begin(), gradients.end(), result);
  }

  static void jvp(Tensor* tangents, SavedCall& call, Tensor* result) {
    Outputs<Op> outputs = Formula::jvp(typed<Inputs<Op>>(tangents), typed(call));
    std::move(outputs.begin(), outputs.end(), result);
  }

  static_assert(Formula::reads.size() == Size::inputs, "`reads` has an entry for each tensor argument");
  static constexpr AnyFormula formula{.name = Op::name,
                                      .inputs = Size::inputs,
                                      .outputs = Size::outputs,
                                      .reads = Formula::reads.data(),
                                      .vjp = &vjp,
                                      .jvp = &jvp};
};

template <class Formula, class Type = typename Formula::Op::Type>
struct AutogradKernel;

template <class Formula, class R, class... Args>
struct AutogradKernel<Formula, R(Args...)> {
  static R run(c10::DispatchKeySet keys, Args... args) {
    if (!is_differentiated(args...)) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      return Formula::Op::redispatch(keys & c10::after_autograd_keyset, args...);
    }
    const auto inputs = tensor_arguments(args...);
    std::array<Tensor, tensor_count<R>> outputs;
    run_differentiable(
        WithoutTypes<Formula>::formula, inputs, outputs,
        [&] { outputs = to_array(Formula::Op::redispatch(keys & c10::after_autograd_keyset, args...)); },
        [&] {
          return std::apply(
              []<class... Ts>(Ts&&... a) {
                return std::vector<Attribute>{Attribute(std::in_place_type<std::remove_cvref_t<Ts>>, std::move(a))...};
              },
              attributes_of<Formula>(args...));
        });
    return from_array<R>(std::move(outputs));
  }
};

// For an operator whose gradient reads values that it does not return. If a gradient may be needed, the operator With
// runs instead, which has a formula and returns these values too. Shape belongs to TheOp, so that errors name TheOp.
template <class TheOp, class With, auto Shape, class Type = typename TheOp::Type>
struct AutogradThrough;

template <class TheOp, class With, auto Shape, class R, class... Args>
struct AutogradThrough<TheOp, With, Shape, R(Args...)> {
  static R run(c10::DispatchKeySet keys, Args... args) {
    if (is_differentiated(args...)) {
      Shape(kit::Args<TheOp>(args...));
      return from_array<R>(to_array(With::call(args...)));
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    return TheOp::redispatch(keys & c10::after_autograd_keyset, args...);
  }
};

template <class TheOp, class Type = typename TheOp::Type>
struct WithoutGradient;

template <class TheOp, class R, class... Args>
struct WithoutGradient<TheOp, R(Args...)> {
  static R run(c10::DispatchKeySet keys, Args... args) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return TheOp::redispatch(keys & c10::after_autograd_keyset, args...);
  }
};

template <class TheOp, class With, auto Shape>
auto autograd_through() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((AutogradThrough<TheOp, With, Shape>::run)));
}

}  // namespace detail

// For an operator whose outputs are piecewise constant: their derivatives are zeros.
template <class TheOp>
auto without_gradient() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((detail::WithoutGradient<TheOp>::run)));
}

// m.impl(Op::name, kit::autograd<Formula>()) in a TORCH_LIBRARY_IMPL of the Autograd key.
template <class Formula>
auto autograd() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((detail::AutogradKernel<Formula>::run)));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
