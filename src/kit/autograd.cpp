// The one autograd Node, which saves the tensors that a formula reads, and the bodies of autograd kernels.

#include "cppcuda/kit/autograd.h"

#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "cppcuda/kit/compat.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::dynamo::autograd::IValuePacker;
using torch::dynamo::autograd::PackedArgs;

// More of them are in memory of their own.
constexpr size_t few = 8;

bool mask_requests(size_t o, std::span<const Attribute> attributes) {
  return std::all_of(attributes.begin(), attributes.end(), [&](const Attribute& a) {
    const auto* const mask = std::get_if<OutputMask>(&a);
    return mask == nullptr || (*mask)[o];
  });
}

// An output that is an input, or shares memory with one, would silently corrupt the graph.
void check_outputs_are_new(const char* op, at::ArrayRef<Tensor> inputs, at::ArrayRef<Tensor> outputs) {
  for (const Tensor& in : inputs) {
    for (const Tensor& out : outputs) {
      TORCH_INTERNAL_ASSERT(!in.defined() || !out.is_same(in), op, ": a kernel returned its input");
      TORCH_INTERNAL_ASSERT(
          !in.defined() || !in.has_storage() || !out.has_storage() || !out.storage().is_alias_of(in.storage()), op,
          ": a kernel returned the memory of its input");
    }
  }
}

// Runs a formula with autocast disabled.
variable_list run_vjp(const AnyFormula& formula, const variable_list& grads, SavedCall saved,
                      const c10::SmallVector<bool, few>& need) {
  variable_list result(formula.inputs);
  c10::SmallVector<Tensor, few> outputs(formula.outputs);
  bool any = false;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (mask_requests(o, saved.attributes)) outputs[o] = grads[o];
    any |= outputs[o].defined();
  }
  if (!any) return result;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  formula.vjp(outputs.data(), saved, need.data(), result.data());
  for (size_t i = 0; i < result.size(); ++i) {
    if (!need[i]) result[i] = Tensor();
  }
  return result;
}

// For compiled autograd, which needs a cache key and replaces sizes by symbolic values while it traces.
template <class T>
void collect(torch::dynamo::autograd::CompiledNodeArgs& args, const T& attribute) {
  if constexpr (std::is_convertible_v<const T&, const OutputMask&>) {
    args.collect(std::string(attribute.begin(), attribute.end()));
  } else if constexpr (requires { args.collect(attribute); }) {
    args.collect(attribute);
  } else {
    args.collect(c10::IValue(attribute));  // torch refuses a generator here
  }
}

template <class T>
using Packed = std::conditional_t<std::is_same_v<T, BoolList>, OutputMask, T>;

template <class T>
at::TypePtr packed_type() {
  if constexpr (std::is_same_v<T, at::Generator>) {
    return at::GeneratorType::get();
  } else if constexpr (std::is_same_v<T, std::optional<at::Generator>>) {
    return at::OptionalType::create(at::GeneratorType::get());
  } else {
    return IValuePacker<T>::packed_type();
  }
}

// `attributes` have the types of those that were packed.
variable_list unpack_and_run(const AnyFormula& formula, std::vector<Attribute> attributes, const variable_list& grads,
                             const std::vector<c10::IValue>& packed) {
  PackedArgs args(packed);
  SavedCall saved{.inputs = {}, .outputs = {}, .attributes = attributes};
  for (size_t i = 0; i < formula.inputs; ++i) saved.inputs.push_back(args.unpack<Tensor>());
  for (size_t o = 0; o < formula.outputs; ++o) saved.outputs.push_back(args.unpack<Tensor>());
  for (Attribute& attribute : attributes) {
    std::visit([&]<class T>(T& a) { static_cast<Packed<T>&>(a) = args.unpack<Packed<T>>(); }, attribute);
  }
  const auto need = args.unpack<std::vector<bool>>();
  const auto inputs = saved.inputs;
  variable_list result = run_vjp(formula, grads, std::move(saved), {need.begin(), need.end()});
  // Unlike the engine, a captured graph adds gradients without looking whether they are defined.
  for (size_t i = 0; i < result.size(); ++i) {
    if (need[i] && !result[i].defined() && inputs[i].defined()) result[i] = at::zeros_like(inputs[i]);
  }
  return result;
}

class FormulaNode final : public torch::autograd::Node {
 public:
  explicit FormulaNode(const AnyFormula& formula) : formula_(formula) {
    inputs_.resize(formula.inputs);
    outputs_.resize(formula.outputs);
  }

  void save_inputs(at::ArrayRef<Tensor> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (reads().inputs >> i & 1) inputs_[i] = SavedVariable(inputs[i], /*is_output=*/false);
    }
  }

  void save_outputs(at::ArrayRef<Tensor> outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (reads().outputs >> i & 1) outputs_[i] = SavedVariable(outputs[i], /*is_output=*/true);
    }
  }

  void save_attributes(std::vector<Attribute> attributes) { attributes_ = std::move(attributes); }

  std::string name() const override { return std::string(formula_.name) + "Backward"; }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return run_vjp(formula_, grads, unpack(), need());
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& v : inputs_) v.reset_data();
    for (SavedVariable& v : outputs_) v.reset_data();
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(std::string(formula_.name));
    for (const SavedVariable& v : inputs_) args.collect(v, /*is_output=*/false);
    for (const SavedVariable& v : outputs_) args.collect(v, /*is_output=*/true);
    for (const Attribute& attribute : attributes_) {
      std::visit([&](const auto& a) { collect(args, a); }, attribute);
    }
  }

  // While compiled autograd traces, the gradients are placeholders without the true sizes, so the formula must not run
  // here. It is packed as a function of plain values, which is called with the real ones later.
  variable_list apply_with_saved(const variable_list& grads,
                                 torch::dynamo::autograd::SwapSavedVariables& saved) override {
    for_each_saved([&](auto& v) { saved.before(v); });
    PackedArgs args;
    std::vector<at::TypePtr> types;
    const auto pack = [&]<class T>(const T& value) {
      args.pack<Packed<T>>(value);
      types.push_back(packed_type<Packed<T>>());
    };
    const SavedCall values = unpack();
    for (const Tensor& t : values.inputs) pack(t);
    for (const Tensor& t : values.outputs) pack(t);
    std::vector<Attribute> attributes;  // with the types of those of the call
    for (const Attribute& a : attributes_) {
      std::visit(pack, a);
      std::visit([&]<class T>(const T&) { attributes.emplace_back(T()); }, a);
    }
    const auto needed = need();
    pack(std::vector<bool>(needed.begin(), needed.end()));

    const auto run_packed = [&formula = formula_, attributes](const variable_list& g,
                                                              const std::vector<c10::IValue>& packed) {
      return unpack_and_run(formula, attributes, g, packed);
    };
    const auto& compiler = torch::dynamo::autograd::getPyCompilerInterface();
    const auto function = compiler->bind_function(saved.get_py_compiler(), name(), run_packed, types,
                                                  /*is_custom_function=*/true, /*is_traceable=*/true);
    const auto metadata = IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
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
    for (size_t i = 0; i < formula_.inputs; ++i) {
      if (!next_edge(i).is_valid()) continue;
      result.inputs |= formula_.reads[i].inputs;
      result.outputs |= formula_.reads[i].outputs;
    }
    return result;
  }

  c10::SmallVector<bool, few> need() const {
    c10::SmallVector<bool, few> result(formula_.inputs);
    for (size_t i = 0; i < result.size(); ++i) result[i] = task_should_compute_output(i);
    return result;
  }

  SavedCall unpack() {
    SavedCall saved{.inputs = {}, .outputs = {}, .attributes = attributes_};
    for (const SavedVariable& v : inputs_) saved.inputs.push_back(v.unpack());
    for (const SavedVariable& v : outputs_) saved.outputs.push_back(v.unpack(getptr()));
    return saved;
  }

  template <class F>
  void for_each_saved(F f) {
    for (SavedVariable& v : inputs_) f(v);
    for (SavedVariable& v : outputs_) f(v);
    for (Attribute& a : attributes_) {
      if (auto* const size = std::get_if<c10::SymInt>(&a)) f(*size);
      if (auto* const size = std::get_if<std::optional<c10::SymInt>>(&a)) f(*size);
      if (auto* const sizes = std::get_if<std::vector<c10::SymInt>>(&a)) f(*sizes);
      auto* const optional_sizes = std::get_if<std::optional<std::vector<c10::SymInt>>>(&a);
      if (optional_sizes != nullptr && optional_sizes->has_value()) f(**optional_sizes);
    }
  }

  const AnyFormula& formula_;
  c10::SmallVector<SavedVariable, 2> inputs_, outputs_;
  std::vector<Attribute> attributes_;
};

bool have_tangents(at::ArrayRef<Tensor> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return torch::autograd::isFwGradDefined(t); });
}

void set_forward_gradients(const AnyFormula& formula, at::ArrayRef<Tensor> inputs, at::ArrayRef<Tensor> outputs,
                           c10::function_ref<std::vector<Attribute>()> attributes) {
  c10::SmallVector<Tensor, few> tangents(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (torch::autograd::isFwGradDefined(inputs[i])) tangents[i] = inputs[i]._fw_grad(/*level=*/0);
  }
  const std::vector<Attribute> owned = attributes();
  SavedCall primals{.inputs = {}, .outputs = {outputs.begin(), outputs.end()}, .attributes = owned};
  primals.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined()) primals.inputs[i] = inputs[i]._fw_primal(/*level=*/0);
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  c10::SmallVector<Tensor, few> results(outputs.size());
  formula.jvp(tangents.data(), primals, results.data());
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (results[o].defined() && mask_requests(o, owned)) {
      Tensor tangent = results[o].to(outputs[o].scalar_type());
      // If inputs broadcast, a formula may return a tangent with the sizes of one of them.
      const auto sizes = outputs[o].sym_sizes();
      if (tangent.sym_sizes() != sizes) tangent = tangent.expand_symint(sizes);
      outputs[o]._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
    }
  }
}

}  // namespace

void run_differentiable(const AnyFormula& formula, at::ArrayRef<Tensor> inputs, at::ArrayRef<Tensor> outputs,
                        c10::function_ref<void()> below, c10::function_ref<std::vector<Attribute>()> attributes) {
  NodePtr<FormulaNode> node;
  if (torch::autograd::compute_requires_grad(inputs)) {
    node = make_node<FormulaNode>(formula);
    torch::autograd::edge_list edges;
    for (const Tensor& t : inputs) {
      edges.push_back(t.defined() ? torch::autograd::impl::gradient_edge(t) : torch::autograd::Edge());
    }
    node->set_next_edges(std::move(edges));
    node->save_inputs(inputs);
  }
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    below();
  }
  check_outputs_are_new(formula.name, inputs, outputs);
  if (node) {
    node->save_attributes(attributes());  // of arguments that the kernel has checked
    // An undefined tensor stands for an output without a gradient, so that the others keep their numbers.
    for (const Tensor& t : outputs) {
      torch::autograd::set_history(torch::autograd::isDifferentiableType(t.scalar_type()) ? t : Tensor(), node);
    }
  }
  if (have_tangents(inputs)) set_forward_gradients(formula, inputs, outputs, attributes);
  // Outputs are saved after their forward gradients are set; otherwise forward-over-reverse would lose a term.
  if (node) node->save_outputs(outputs);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
