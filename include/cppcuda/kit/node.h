#pragma once

// The one autograd Node. It saves the tensors that a formula reads, and runs the formula in backward and in compiled
// autograd.

#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <array>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "cppcuda/kit/compat.h"
#include "cppcuda/kit/formula.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Runs a formula with autocast disabled.
template <class Formula>
torch::autograd::variable_list run_vjp(const torch::autograd::variable_list& grads, const Saved<Formula>& saved,
                                       const Need<typename Formula::Op>& need) {
  torch::autograd::variable_list result(need.size());
  Outputs<typename Formula::Op> outputs;
  bool any = false;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const bool computed = std::apply([&](const auto&... a) { return is_requested(o, a...); }, saved.attributes);
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

// For compiled autograd, which needs a cache key and replaces sizes by symbolic values while it traces.
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

  // While compiled autograd traces, the gradients are placeholders without the true sizes, so the formula must not run
  // here. It is packed as a function of plain values, which is called with the real ones later.
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
  // The union over all gradients that can be requested.
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

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
