#pragma once

// The autograd kernel of every op, made from formulas.
//
// A formula is a struct in the op's autograd.cpp:
//
//   struct Formula {
//     using Op = ...;  // a kit::Op
//     // What the gradient of each tensor argument reads, by the names of arguments and outputs.
//     static constexpr auto reads = kit::reads<Op>({{"feats", {"points"}}, {"points", {"feats", "points"}}});
//     static Inputs<Op> vjp(const Outputs<Op>& grads, const Saved<Formula>& saved, const Need<Op>& need);
//     static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved<Formula>& saved);
//   };
//
// Inputs and Outputs are arrays of Tensor, Need is an array of bool. The names in the op's declaration are their
// indices (names.h): saved["points"], need["feats"].
//
// vjp and jvp call differentiable ops only; every higher order follows from that. Undefined tensors stand for zeros,
// among grads and tangents and in what is returned. Arguments that are not tensors reach the formulas as
// saved.attribute<"name">(), as owned values. `static auto attributes(args...)`, if the struct has it, returns a tuple
// of more, which stand behind those in saved.attributes.
//
// The kernel does what the generated kernels of torch's own ops do (VariableType), so that all of torch.func, forward
// AD, compiled autograd and saved-tensor hooks work; C++ torch::autograd::Function does not support them.

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/library.h>

#include <array>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "cppcuda/kit/compat.h"
#include "cppcuda/kit/names.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/shape.h"

namespace cppcuda::kit {

// sum += term, where an undefined sum is zero.
inline void accumulate(Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; }

// In the type that sums are taken in, for formulas of several terms.
inline Tensor in_opmath(const Tensor& t) { return t.to(at::toOpMathType(t.scalar_type())); }

// The bool[N] output_mask of a backward op.
using OutputMask = std::vector<bool>;

// An attribute outlives the call that it came from.
inline std::string own(std::string_view v) { return std::string(v); }
inline std::vector<c10::SymInt> own(c10::SymIntArrayRef v) { return v.vec(); }
inline OutputMask own(const c10::List<bool>& v) { return v.vec(); }
template <class T>
T own(T v) {
  return v;
}

template <class Formula, class... Args>
auto attributes_of(const Args&... args) {
  auto pick = [](const auto& arg) {
    if constexpr (is_tensor_argument<decltype(arg)>) {
      return std::tuple<>();
    } else {
      return std::make_tuple(own(arg));
    }
  };
  if constexpr (requires { Formula::attributes(args...); }) {
    return std::tuple_cat(pick(args)..., Formula::attributes(args...));
  } else {
    return std::tuple_cat(pick(args)...);
  }
}

template <class Type>
struct Counts;

template <class R, class... Args>
struct Counts<R(Args...)> {
  static constexpr size_t inputs = (size_t{is_tensor_argument<Args>} + ... + 0);
  static constexpr size_t outputs = tensor_count<R>;
};

// An entry for each tensor among the arguments, or for each output; by name too, if the op has a declaration.
template <class TheOp>
struct ArraysOf {
  using Size = Counts<typename TheOp::Type>;
  using Inputs = std::array<Tensor, Size::inputs>;
  using Outputs = std::array<Tensor, Size::outputs>;
  using Need = std::array<bool, Size::inputs>;
};

template <class TheOp>
  requires requires { TheOp::declaration; }
struct ArraysOf<TheOp> {
  using Size = Counts<typename TheOp::Type>;
  using Inputs = Named<Tensor, Size::inputs, InputKey<TheOp>>;
  using Outputs = Named<Tensor, Size::outputs, OutputKey<TheOp>>;
  using Need = Named<bool, Size::inputs, InputKey<TheOp>>;
};

template <class TheOp>
using Inputs = typename ArraysOf<TheOp>::Inputs;
template <class TheOp>
using Outputs = typename ArraysOf<TheOp>::Outputs;
template <class TheOp>
using Need = typename ArraysOf<TheOp>::Need;

template <class Formula, class Type = typename Formula::Op::Type>
struct AttributesOf;

template <class Formula, class R, class... Args>
struct AttributesOf<Formula, R(Args...)> {
  using type = decltype(attributes_of<Formula>(std::declval<Args>()...));
};

// The part of the forward call that a formula sees: in vjp the tensors that `reads` names, in jvp all.
template <class Formula>
struct Saved {
  using Op = typename Formula::Op;

  Inputs<Op> inputs;
  Outputs<Op> outputs;
  typename AttributesOf<Formula>::type attributes;

  // By its name in the declaration of the op.
  const Tensor& operator[](TensorKey<Op> key) const { return key.is_output ? outputs[key.index] : inputs[key.index]; }

  // Several, for `const auto [x, p] = saved.get<"feats", "points">()`.
  template <FixedString... Names>
  auto get() const {
    return std::tie((*this)[TensorKey<Op>(Names.value)]...);
  }

  // Whether output_mask requests the output.
  bool is_requested(OutputKey<Op> key) const {
    return std::apply([&](const auto&... a) { return computes(key.index, a...); }, attributes);
  }

  // An argument that is no tensor.
  template <FixedString Name>
  const auto& attribute() const {
    return std::get<attribute_index<Op, Name>()>(attributes);
  }
};

// A formula is run as it is written, whatever autocast says around it.
template <class Formula>
torch::autograd::variable_list run_vjp(const torch::autograd::variable_list& grads, const Saved<Formula>& saved,
                                       const Need<typename Formula::Op>& need) {
  torch::autograd::variable_list result(need.size());
  Outputs<typename Formula::Op> outputs;
  bool any = false;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const bool computed = std::apply([&](const auto&... a) { return computes(o, a...); }, saved.attributes);
    if (computed) outputs[o] = grads[o];
    any |= outputs[o].defined();
  }
  if (!any) return result;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Inputs<typename Formula::Op> gradients = Formula::vjp(outputs, saved, need);
  for (size_t i = 0; i < need.size(); ++i) {
    if (need[i]) result[i] = std::move(gradients[i]);
  }
  return result;
}

// Compiled autograd: a key for the cache, and symbolic values in place of sizes while it traces.
template <class T>
void collect(torch::dynamo::autograd::CompiledNodeArgs& args, const T& attribute) {
  args.collect(attribute);
}
inline void collect(torch::dynamo::autograd::CompiledNodeArgs& args, const OutputMask& attribute) {
  args.collect(std::string(attribute.begin(), attribute.end()));
}

template <class T>
inline constexpr bool is_symbolic = false;
template <>
inline constexpr bool is_symbolic<c10::SymInt> = true;
template <class T>
inline constexpr bool is_symbolic<std::vector<T>> = is_symbolic<T>;
template <class T>
inline constexpr bool is_symbolic<std::optional<T>> = is_symbolic<T>;

template <class Formula>
class FormulaNode final : public torch::autograd::Node {
  using variable_list = torch::autograd::variable_list;
  using SavedVariable = torch::autograd::SavedVariable;
  using PackedArgs = torch::dynamo::autograd::PackedArgs;

 public:
  void save_inputs(const Inputs<typename Formula::Op>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (reads().inputs >> i & 1) inputs_[i] = SavedVariable(inputs[i], /*is_output=*/false);
    }
  }

  void save_outputs(const Outputs<typename Formula::Op>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (reads().outputs >> i & 1) outputs_[i] = SavedVariable(outputs[i], /*is_output=*/true);
    }
  }

  void save_attributes(typename AttributesOf<Formula>::type attributes) { attributes_ = std::move(attributes); }

  std::string name() const override { return std::string(Formula::Op::name) + "Backward"; }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return run_vjp<Formula>(grads, unpack(), need());
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& v : inputs_) v.reset_data();
    for (SavedVariable& v : outputs_) v.reset_data();
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(std::string(Formula::Op::name));
    for (const SavedVariable& v : inputs_) args.collect(v, /*is_output=*/false);
    for (const SavedVariable& v : outputs_) args.collect(v, /*is_output=*/true);
    std::apply([&](const auto&... a) { (kit::collect(args, a), ...); }, attributes_);
  }

  // While compiled autograd traces, the gradients are placeholders without the true sizes: the
  // formula must not run here. It becomes a function of plain values, which is called with the real
  // ones later.
  variable_list apply_with_saved(const variable_list& grads,
                                 torch::dynamo::autograd::SwapSavedVariables& saved) override {
    for_each_saved([&](auto& v) { saved.before(v); });
    PackedArgs args;
    std::vector<at::TypePtr> types;
    auto pack = [&]<class T>(const T& value) {
      args.pack(value);
      types.push_back(torch::dynamo::autograd::IValuePacker<T>::packed_type());
    };
    const Saved<Formula> values = unpack();
    for (const Tensor& t : values.inputs) pack(t);
    for (const Tensor& t : values.outputs) pack(t);
    std::apply([&](const auto&... a) { (pack(a), ...); }, values.attributes);
    const auto needed = need();
    pack(std::vector<bool>(needed.begin(), needed.end()));

    const auto& compiler = torch::dynamo::autograd::getPyCompilerInterface();
    const auto function = compiler->bind_function(saved.get_py_compiler(), name(), run_packed, types,
                                                  /*is_custom_function=*/true, /*is_traceable=*/true);
    const auto metadata =
        torch::dynamo::autograd::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
            torch::dynamo::autograd::get_input_metadata(next_edges()));
    auto result = compiler->call_function(saved.get_py_compiler(), "apply_functional", function, grads,
                                          std::move(args).vec(), metadata);
    for_each_saved([&](auto& v) { saved.after(v); });
    return result;
  }

 private:
  // The union over the gradients that can be asked for.
  Reads reads() const {
    Reads result;
    for (size_t i = 0; i < Formula::reads.size(); ++i) {
      if (!next_edge(i).is_valid()) continue;
      result.inputs |= Formula::reads[i].inputs;
      result.outputs |= Formula::reads[i].outputs;
    }
    return result;
  }

  Need<typename Formula::Op> need() const {
    Need<typename Formula::Op> result;
    for (size_t i = 0; i < result.size(); ++i) result[i] = task_should_compute_output(i);
    return result;
  }

  Saved<Formula> unpack() {
    Saved<Formula> saved;
    for (size_t i = 0; i < inputs_.size(); ++i) saved.inputs[i] = inputs_[i].unpack();
    for (size_t i = 0; i < outputs_.size(); ++i) saved.outputs[i] = outputs_[i].unpack(getptr());
    saved.attributes = attributes_;
    return saved;
  }

  template <class F>
  void for_each_saved(F f) {
    for (SavedVariable& v : inputs_) f(v);
    for (SavedVariable& v : outputs_) f(v);
    auto if_symbolic = [&]<class T>(T& attribute) {
      if constexpr (is_symbolic<T>) f(attribute);
    };
    std::apply([&](auto&... a) { (if_symbolic(a), ...); }, attributes_);
  }

  static variable_list run_packed(const variable_list& grads, const std::vector<c10::IValue>& packed) {
    PackedArgs args(packed);
    Saved<Formula> saved;
    for (Tensor& t : saved.inputs) t = args.unpack<Tensor>();
    for (Tensor& t : saved.outputs) t = args.unpack<Tensor>();
    std::apply([&](auto&... a) { ((a = args.unpack<std::remove_reference_t<decltype(a)>>()), ...); }, saved.attributes);
    const auto needed = args.unpack<std::vector<bool>>();
    Need<typename Formula::Op> need{};
    std::copy_n(needed.begin(), need.size(), need.begin());
    return run_vjp<Formula>(grads, saved, need);
  }

  std::array<SavedVariable, Counts<typename Formula::Op::Type>::inputs> inputs_;
  std::array<SavedVariable, Counts<typename Formula::Op::Type>::outputs> outputs_;
  typename AttributesOf<Formula>::type attributes_;
};

// An output that is an input, or shares its memory, would corrupt the graph silently.
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
      node->save_attributes(attributes_of<Formula>(args...));  // the kernel has checked what they are made from
      for (const Tensor& t : outputs) torch::autograd::set_history(t, node);
    }
    set_forward_gradients(inputs, outputs, args...);
    // After its forward gradient is set: else forward over reverse loses a term.
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
      if (results[i].defined() && computes(i, args...)) {
        outputs[i]._set_fw_grad(results[i].to(outputs[i].scalar_type()), /*level=*/0,
                                /*is_inplace_op=*/false);
      }
    }
  }
};

// For an op whose gradient reads what the op does not return. Where there may be a gradient, With runs in its place,
// which has a formula and returns more; Shape is the op's own, so that errors name it.
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

// m.impl(Op::name, kit::autograd<Formula>()) in a TORCH_LIBRARY_IMPL of the Autograd key.
template <class Formula>
auto autograd() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((AutogradKernel<Formula>::run)));
}

}  // namespace cppcuda::kit
