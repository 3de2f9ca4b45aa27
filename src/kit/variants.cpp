#include "cppcuda/kit/variants.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <numeric>
#include <set>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/derive.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/memory.h"
#include "cppcuda/kit/vmap.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::FunctionSchema;
using c10::OperatorHandle;
using torch::jit::Stack;
using Tensors = c10::SmallVector<Tensor, 1>;

// Whether sum_d k_d strides_d = distance has a solution with |k_d| < sizes_d. Dims are ordered from large strides to
// small ones. Also returns true if there are too many partial sums to try, which can happen if strides are not nested.
bool reaches(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t distance) {
  constexpr int64_t max_distances = 1024;
  int64_t reach = 0;  // the largest sum over the dims that follow
  for (size_t d = 0; d < sizes.size(); ++d) reach += (sizes[d] - 1) * strides[d];
  std::set<int64_t> distances{distance};
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t size = sizes[d], stride = strides[d];
    if (size == 1) continue;
    reach -= (size - 1) * stride;
    std::set<int64_t> rests;
    for (const int64_t from : distances) {
      const int64_t first = std::max((from - reach) / stride - 1, 1 - size);
      const int64_t last = std::min((from + reach) / stride + 1, size - 1);
      if (last - first >= max_distances) return true;
      for (int64_t k = first; k <= last; ++k) {
        if (std::abs(from - k * stride) <= reach) rests.insert(from - k * stride);
      }
    }
    if (rests.size() > max_distances) return true;
    distances = std::move(rests);
  }
  return distances.contains(0);
}

// Whether a and b share an element. Returns true if that is hard to determine, as for two views of the same memory with
// different strides.
bool overlap(const Tensor& a, const Tensor& b) {
  const auto bytes_of = [](const Tensor& t) {  // from the first element to the last one
    if (t.is_non_overlapping_and_dense()) return static_cast<int64_t>(t.nbytes());
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    return (last + 1) * static_cast<int64_t>(t.element_size());
  };
  const auto a_begin = reinterpret_cast<intptr_t>(a.const_data_ptr());
  const auto b_begin = reinterpret_cast<intptr_t>(b.const_data_ptr());
  const int64_t bytes = b_begin - a_begin, size = static_cast<int64_t>(a.element_size());
  if (a.numel() == 0 || b.numel() == 0 || bytes >= bytes_of(a) || -bytes >= bytes_of(b)) return false;
  if (a.dtype() != b.dtype() || a.strides() != b.strides() || bytes % size != 0) return true;
  std::vector<int64_t> order(a.dim()), sizes, strides;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t d, int64_t e) { return a.stride(d) > a.stride(e); });
  for (const int64_t d : order) {
    sizes.push_back(std::max(a.size(d), b.size(d)));
    strides.push_back(a.stride(d));
  }
  return reaches(sizes, strides, bytes / size);
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

bool is_written(const c10::Argument& a) { return a.alias_info() != nullptr && a.alias_info()->isWrite(); }

// The written argument number o.
const c10::Argument& written_argument(const FunctionSchema& schema, size_t o) {
  for (const c10::Argument& a : schema.arguments()) {
    if (is_written(a) && o-- == 0) return a;
  }
  TORCH_INTERNAL_ASSERT(false, schema, " writes to fewer arguments");
}

// The names of the arguments that are written to: "out0 and out1".
std::string written_names(const FunctionSchema& schema) {
  std::string result;
  for (const c10::Argument& a : schema.arguments()) {
    if (is_written(a)) result.append(result.empty() ? "" : " and ").append(a.name());
  }
  return result;
}

// The name of the operator that returns what a call writes: without the underscore of a call in place.
std::string functional_name(const FunctionSchema& schema) {
  std::string name = op_name(schema);
  if (name.back() == '_') name.pop_back();
  return name;
}

// The arguments of a call, which are the last values of a stack.
std::span<c10::IValue> arguments_of(const OperatorHandle& op, Stack* stack) {
  return std::span(*stack).last(op.schema().arguments().size());
}

// Calls f for the tensors that an argument is or has.
template <class F>
void for_each_tensor(const c10::IValue& value, F f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) for_each_tensor(each, f);
  }
}

// The argument with other tensors.
template <class F>
c10::IValue with_tensors(const c10::IValue& value, F f) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(f(value.toTensor())) : value;
  if (!value.isTensorList() && !value.isOptionalTensorList()) return value;
  c10::List<c10::IValue> list = value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) list.set(i, with_tensors(list.get(i), f));
  return list;
}

Tensors written_in(const OperatorHandle& op, Stack* stack) {
  Tensors result;
  const auto values = arguments_of(op, stack);
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < values.size(); ++i) {
    if (is_written(arguments[i])) for_each_tensor(values[i], [&](const Tensor& t) { result.push_back(t); });
  }
  return result;
}

// Replaces the last `count` values by what a call returns.
void return_written(const OperatorHandle& op, Stack* stack, size_t count, const Tensors& written) {
  torch::jit::drop(*stack, count);
  for (size_t o = 0; o < op.schema().returns().size(); ++o) stack->emplace_back(written[o]);
}

// Throws if a tensor is not like a result of the operator. `strides`: also if it has other strides than new memory.
void check_like(const FunctionSchema& schema, size_t o, const Tensor& out, const Output& result, bool strides) {
  const char *const op = op_name(schema), *const name = written_argument(schema, o).name().c_str();
  const Checker check(op);
  check.same_device(name, out, "the result", result.options.device());
  check.same_dtype(name, out, "the result", c10::typeMetaToScalarType(result.options.dtype()));
  check.same_shape(name, out, "the result", result.sizes);
  if (!strides) return;
  if (result.strides_of.defined()) {
    const Tensor alike = at::empty_like(result.strides_of, result.options.device(at::kMeta));
    TORCH_CHECK(out.sym_strides() == alike.sym_strides(), op, ": ", name, " must have strides ", alike.sym_strides(),
                ", those of the result, got ", out.sym_strides());
    return;
  }
  const auto format = result.options.memory_format_opt().value_or(at::MemoryFormat::Contiguous);
  TORCH_CHECK(out.is_contiguous_or_false(format), op, ": ", name, " must be contiguous",
              format == at::MemoryFormat::Contiguous ? "" : " in channels_last", ", got strides ", out.sym_strides());
}

// Throws if elements of a tensor are known to share memory (a stride of 0), like at::assert_no_internal_overlap.
void check_writable(const FunctionSchema& schema, const c10::Argument& argument, const Tensor& out) {
  TORCH_CHECK(at::has_internal_overlap(out) != at::MemOverlap::Yes, op_name(schema), ": ", argument.name(),
              " must not have elements that share memory, got strides ", out.sym_strides());
}

// Throws if a call that writes would silently lose the gradient of an argument. If it is a call of f.out or f_, the
// error names f.
void check_loses_no_gradient(const FunctionSchema& schema, std::span<const c10::IValue> values, bool is_variant) {
  const auto check = [&](size_t lost, const Tensor& t) {
    const bool forward_mode = torch::autograd::isFwGradDefined(t);
    if (!forward_mode && !torch::autograd::compute_requires_grad(t)) return;
    std::string instead = "call it under torch.no_grad()";
    if (is_variant) {
      std::string arguments;
      for (const c10::Argument& a : schema.arguments()) {
        if (!a.kwarg_only()) arguments += (arguments.empty() ? "" : ", ") + a.name();
      }
      instead = "call " + functional_name(schema) + "(" + arguments + ") instead" +
                (forward_mode ? "" : ", or this one under torch.no_grad()");
    }
    const std::string names = written_names(schema);
    TORCH_CHECK(false, op_name(schema), ": ", schema.arguments()[lost].name(),
                forward_mode ? " has a tangent" : " requires a gradient", ", which ",
                names.empty() ? "this operator" : "a call that writes to " + names, " loses; ", instead);
  };
  for (size_t i = 0; i < values.size(); ++i) for_each_tensor(values[i], [&](const Tensor& t) { check(i, t); });
}

// The tensors that the kernels of the operator take on this thread.
thread_local const GivenOutputs* given_outputs = nullptr;

}  // namespace

class GivenOutputs {
 public:
  // For the operator f, in a call with this schema.
  GivenOutputs(const OperatorHandle& f, const FunctionSchema& schema, const Tensors& tensors, bool any_strides)
      : f_(f.operator_name().name), schema_(schema), tensors_(tensors), any_strides_(any_strides) {
    given_outputs = this;
  }
  GivenOutputs(const GivenOutputs&) = delete;
  GivenOutputs& operator=(const GivenOutputs&) = delete;
  ~GivenOutputs() { given_outputs = nullptr; }

  bool are_for(std::string_view op) const { return f_ == op; }

  const Tensor& checked(size_t o, const Output& output) const {
    check_like(schema_, o, tensors_[o], output, !any_strides_);
    return tensors_[o];
  }

 private:
  std::string_view f_;
  const FunctionSchema& schema_;
  const Tensors& tensors_;
  bool any_strides_;
};

const GivenOutputs* take_given_outputs(const char* op) {
  if (given_outputs == nullptr || !given_outputs->are_for(op)) return nullptr;
  return std::exchange(given_outputs, nullptr);
}

Tensor given_or_new(const GivenOutputs* given, size_t o, const Output& output) {
  return given != nullptr ? given->checked(o, output) : allocate(output);
}

namespace {

// The kernels of f.out or f_, from those of f. They are boxed, so that each exists once.
class Variant {
 public:
  Variant(OperatorHandle f, OutMemory memory) : f_(std::move(f)), memory_(memory) {}

  // On the CPU, on a GPU and, without memory, on the Meta device.
  void compute(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) const {
    const FunctionSchema& schema = op.schema();
    const Tensors written = written_in(op, stack);
    // Other errors of arguments are those of f, with its name.
    if (is_in_place(schema)) Checker(op_name(schema)).floating("self", written[0]);
    for (size_t o = 0; o < written.size(); ++o) check_writable(schema, written_argument(schema, o), written[o]);
    const auto backend = keys.highestBackendKey();
    const bool has_memory = backend != c10::BackendComponent::MetaBit;
    bool copies = memory_ == OutMemory::as_allocated && is_in_place(schema);
    for (size_t o = 0; o < written.size() && has_memory; ++o) {
      for (size_t i = 0; i < written.size() && i < o; ++i) {
        TORCH_CHECK(!overlap(written[i], written[o]), op_name(schema), ": ", written_names(schema),
                    " must share no memory, got an overlap");
      }
      copies |= must_copy(op, stack, written[o], o);
    }
    if (!is_in_place(schema)) {
      torch::jit::drop(*stack, written.size());
      for (size_t o = 0; o < written.size() && has_memory; ++o) {
        advise_huge_pages(written[o]);  // it may be new, as memory that Inductor allocates
      }
    }
    {
      std::optional<GivenOutputs> given;
      if (!copies) given.emplace(f_, schema, written, memory_ != OutMemory::as_allocated);
      f_.redispatchBoxed(DispatchKeySet(c10::toRuntimePerBackendFunctionalityKey(DispatchKey::Dense, backend)), stack);
    }
    copy(schema, torch::jit::last(*stack, written.size()), written, has_memory);
    return_written(op, stack, written.size(), written);
  }

  void under_vmap(const OperatorHandle& op, DispatchKeySet /*keys*/, Stack* stack) const {
    const FunctionSchema& schema = op.schema();
    const auto level = VmapLevel::current();
    const auto values = arguments_of(op, stack);
    const Tensors written = written_in(op, stack);
    const auto batched = std::find_if(values.begin(), values.end(),
                                      [&](const auto& v) { return v.isTensor() && level.is_batched(v.toTensor()); });
    if (batched == values.end()) {
      const c10::impl::ExcludeDispatchKeyGuard below(DispatchKey::FuncTorchBatched);
      return op.callBoxed(stack);
    }
    if (memory_ != OutMemory::as_allocated) check(op, stack);
    for (size_t o = 0; o < written.size(); ++o) {
      TORCH_CHECK(level.is_batched(written[o]), op_name(schema), ": ", written_argument(schema, o).name(),
                  " must have the batch that vmap gives to ", schema.arguments()[batched - values.begin()].name(),
                  ", which one tensor cannot hold; use the functional form");
    }
    if (memory_ == OutMemory::as_allocated) {
      copy(schema, call_f(op, stack), written, true);
      return return_written(op, stack, values.size(), written);
    }
    const c10::SymInt batch = level.batch_size(written[0]);
    for (c10::IValue& v : values) {
      if (v.isTensor()) v = level.unwrap(v.toTensor(), batch, written[0].dim());
    }
    const c10::impl::ExcludeDispatchKeyGuard below(DispatchKey::FuncTorchBatched);
    op.callBoxed(stack);
    return_written(op, stack, schema.returns().size(), written);
  }

  // For a view with the negative bit, whose memory has the negated values.
  void of_negative(const OperatorHandle& op, DispatchKeySet /*keys*/, Stack* stack) const {
    check(op, stack);
    const Tensors written = written_in(op, stack);
    copy(op.schema(), call_f(op, stack), written, true);
    return_written(op, stack, op.schema().arguments().size(), written);
  }

  void functionalize(const OperatorHandle& op, DispatchKeySet /*keys*/, Stack* stack) const {
    namespace impl = at::functionalization::impl;
    check(op, stack);
    const Tensors written = written_in(op, stack);
    for (c10::IValue& v : arguments_of(op, stack)) {
      if (!v.isTensor() || !impl::isFunctionalTensor(v.toTensor())) continue;
      impl::sync(v.toTensor());
      v = impl::from_functional_tensor(v.toTensor());
    }
    const at::AutoDispatchSkipFunctionalize below;
    if (!impl::isFunctionalTensor(written[0])) {
      op.callBoxed(stack);
      return return_written(op, stack, op.schema().returns().size(), written);
    }
    const Stack results = call_f(op, stack);
    for (size_t o = 0; o < written.size(); ++o) {
      impl::replace_(written[o], results[o].toTensor());
      impl::commit_update(written[o]);
      impl::sync(written[o]);
    }
    return_written(op, stack, op.schema().arguments().size(), written);
  }

 private:
  static bool is_in_place(const FunctionSchema& schema) { return schema.overload_name() != "out"; }

  // Whether the result must be computed in other memory, because it is an input. Throws if it overlaps an input.
  bool must_copy(const OperatorHandle& op, Stack* stack, const Tensor& out, size_t o) const {
    const FunctionSchema& schema = op.schema();
    const auto values = arguments_of(op, stack);
    bool result = false;
    for (size_t i = 0; i < values.size(); ++i) {
      const c10::Argument& a = schema.arguments()[i];
      if (!values[i].isTensor() || !values[i].toTensor().defined() || is_written(a)) continue;
      const Tensor& in = values[i].toTensor();
      const bool may_be_input = memory_ != OutMemory::as_allocated, is_same = may_be_input && is_same_view(in, out);
      TORCH_CHECK(is_same || !overlap(in, out), op_name(schema), ": ", written_argument(schema, o).name(), " must ",
                  may_be_input ? "be " + a.name() + " itself or " : "", "share no memory with ",
                  may_be_input ? "it" : a.name(), ", got an overlap");
      result |= is_same;
    }
    result |= is_in_place(schema);
    return result && memory_ == OutMemory::any_but_inputs_on_gpu && !out.is_cpu();
  }

  // The checks of a call, which need no memory.
  void check(const OperatorHandle& op, Stack* stack) const {
    const auto values = arguments_of(op, stack);
    Stack arguments(values.begin(), values.end());
    compute(op, DispatchKeySet(DispatchKey::Meta), &arguments);
  }

  // What f returns for the same arguments.
  Stack call_f(const OperatorHandle& op, Stack* stack) const {
    const auto values = arguments_of(op, stack);
    Stack arguments(values.begin(), values.end());
    if (!is_in_place(op.schema())) torch::jit::drop(arguments, arguments.size() - f_.schema().arguments().size());
    f_.callBoxed(&arguments);
    return arguments;
  }

  // Copies the results that f has not written to the tensors itself.
  static void copy(const FunctionSchema& schema, at::ArrayRef<c10::IValue> results, const Tensors& written,
                   bool has_memory) {
    for (size_t o = 0; o < written.size(); ++o) {
      const Tensor& result = results[o].toTensor();
      if (result.is_same(written[o])) continue;
      check_like(schema, o, written[o], {c10::SymDimVector(result.sym_sizes()), result.options()}, false);
    }
    for (size_t o = 0; o < written.size() && has_memory; ++o) {
      if (!results[o].toTensor().is_same(written[o])) written[o].copy_(results[o].toTensor());
    }
  }

  OperatorHandle f_;
  OutMemory memory_;
};

template <auto Method>
struct VariantKernel final : c10::OperatorKernel {
  explicit VariantKernel(Variant v) : variant(std::move(v)) {}
  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) { (variant.*Method)(op, keys, stack); }
  Variant variant;
};

// Calls that write are for inference and not differentiable.
template <bool IsVariant>
void refuse_gradients(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  check_loses_no_gradient(op.schema(), arguments_of(op, stack), IsVariant);
  const at::AutoDispatchBelowAutograd below;
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

// The same, unless there is something that computes the operator with torch's operators.
struct FunctionGradients final : c10::OperatorKernel {
  explicit FunctionGradients(OnTensors f) : on_tensors(std::move(f)) {}

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    if (!on_tensors->isValid()) return refuse_gradients<false>(op, keys, stack);
    bool is_differentiated = false;
    for (const c10::IValue& v : arguments_of(op, stack)) {
      for_each_tensor(v, [&](const Tensor& t) {
        is_differentiated |= torch::autograd::isFwGradDefined(t) || torch::autograd::compute_requires_grad(t);
      });
    }
    if (is_differentiated) return on_tensors->callBoxed(op, keys, stack);
    const at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }

  OnTensors on_tensors;
};

// Without a new version, a graph that saved a tensor would silently use the new values.
void bump_version(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const Tensors written = written_in(op, stack);
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  for (const Tensor& t : written) t.unsafeGetTensorImpl()->bump_version();
}

using torch::CppFunction;

void implement(torch::Library& library, const char* name, DispatchKey key, CppFunction kernel) {
  library.impl(name, torch::dispatch(key, std::move(kernel)));
}

// The kernels that all operators have that write to arguments.
template <bool IsVariant>
void implement_writing(torch::Library& library, const Declaration& declaration, const char* name) {
  implement(library, name, DispatchKey::Autograd, CppFunction::makeFromBoxedFunction<&refuse_gradients<IsVariant>>());
  implement(library, name, DispatchKey::ADInplaceOrView, CppFunction::makeFromBoxedFunction<&bump_version>());
  refuse_backends(library, name, &declaration);
}

void implement_variant(torch::Library& library, const Declaration& f, const std::string& name, const Variant& variant) {
  const auto add = [&]<auto Method>(DispatchKey key, std::integral_constant<decltype(Method), Method>) {
    implement(library, name.c_str(), key,
              CppFunction::makeFromBoxedFunctor(std::make_unique<VariantKernel<Method>>(variant)));
  };
  constexpr std::integral_constant<decltype(&Variant::compute), &Variant::compute> compute;
  add(DispatchKey::CPU, compute);
  if (has_cuda_kernels()) add(DispatchKey::CUDA, compute);
  add(DispatchKey::Meta, compute);
  add(DispatchKey::FuncTorchBatched, std::integral_constant<decltype(&Variant::under_vmap), &Variant::under_vmap>());
  add(DispatchKey::Negative, std::integral_constant<decltype(&Variant::of_negative), &Variant::of_negative>());
  add(DispatchKey::Functionalize, std::integral_constant<decltype(&Variant::functionalize), &Variant::functionalize>());
  implement_writing</*IsVariant=*/true>(library, f, name.c_str());
}

// Calls the operator once if the batch can be the optional first dim of all tensors, otherwise once for each row.
struct FunctionUnderVmap final : c10::OperatorKernel {
  explicit FunctionUnderVmap(const Declaration& d) : declaration(d) {}

  void operator()(const OperatorHandle& op, DispatchKeySet /*keys*/, Stack* stack) {
    const FunctionSchema& schema = op.schema();
    const auto level = VmapLevel::current();
    const auto values = arguments_of(op, stack);
    std::optional<size_t> batched;
    std::optional<c10::SymInt> batch;
    for (size_t i = 0; i < values.size(); ++i) {
      for_each_tensor(values[i], [&](const Tensor& t) {
        if (batched || !level.is_batched(t)) return;
        batched = i;
        batch = level.batch_size(t);
      });
    }
    const c10::impl::ExcludeDispatchKeyGuard below(DispatchKey::FuncTorchBatched);
    if (!batched) return op.callBoxed(stack);
    bool at_once = std::all_of(declaration.outputs.begin(), declaration.outputs.end(),
                               [](const Argument& o) { return o.pattern.has_optional(); });
    for (size_t i = 0; i < values.size(); ++i) {
      const c10::Argument& a = schema.arguments()[i];
      const Pattern& pattern = declaration.arguments[i].pattern;
      for_each_tensor(values[i], [&](const Tensor& t) {
        TORCH_CHECK(!is_written(a) || level.is_batched(t), op_name(schema), ": ", a.name(),
                    " must have the batch that vmap gives to ", schema.arguments()[*batched].name(),
                    ", which one tensor cannot hold");
        at_once = at_once && pattern.has_optional() && static_cast<size_t>(t.dim()) + 1 == pattern.rank();
      });
    }
    for (c10::IValue& v : values) v = with_tensors(v, [&](const Tensor& t) { return level.unwrap(t, *batch); });
    if (at_once) {
      op.callBoxed(stack);
      for (c10::IValue& v : std::span(*stack).last(schema.returns().size())) v = level.wrap(v.toTensor());
      return;
    }
    std::vector<Stack> rows;
    for (int64_t row = 0; row < batch->expect_int(); ++row) {
      rows.emplace_back();
      for (const c10::IValue& v : values) {
        rows[row].push_back(with_tensors(v, [&](const Tensor& t) { return t.select(0, row); }));
      }
      op.callBoxed(&rows[row]);
    }
    torch::jit::drop(*stack, values.size());
    for (size_t o = 0; o < schema.returns().size(); ++o) stack->push_back(stacked(schema, rows, o, level));
  }

  // Result number o of all rows.
  static c10::IValue stacked(const FunctionSchema& schema, const std::vector<Stack>& rows, size_t o,
                             const VmapLevel& level) {
    TORCH_CHECK(!rows.empty(), op_name(schema), ": there are no results for a batch without rows");
    const auto of_all = [&](auto get) {
      std::vector<Tensor> tensors;
      for (const Stack& row : rows) {
        tensors.push_back(get(row[o]));
        TORCH_CHECK(tensors.back().defined() && tensors.back().sizes() == tensors[0].sizes(), op_name(schema),
                    ": the results of rows under vmap must have the same sizes");
      }
      return level.wrap(at::stack(tensors));
    };
    const c10::IValue& first = rows[0][o];
    if (first.isTensor()) return of_all([](const c10::IValue& v) { return v.toTensor(); });
    if (first.isTensorList()) {
      std::vector<Tensor> list;
      for (size_t e = 0; e < first.toTensorVector().size(); ++e) {
        list.push_back(of_all([&](const c10::IValue& v) {
          const auto each = v.toTensorVector();
          return e < each.size() ? each[e] : Tensor();
        }));
      }
      return list;
    }
    TORCH_CHECK(first.isNone(), op_name(schema), ": result ", o, " is no tensor, so it has no batch under vmap");
    return first;
  }

  const Declaration& declaration;
};

#if TORCH_VERSION_MINOR >= 13
constexpr bool returns_self = true;
constexpr auto in_place_tag = at::Tag::inplace;
#else
constexpr bool returns_self = false;
constexpr auto in_place_tag = at::Tag::pt2_compliant_tag;
#endif

// "Tensor(a!)" for tensor number 0.
std::string written_type(size_t o) { return std::string("Tensor(") + static_cast<char>('a' + o) + "!)"; }

}  // namespace

void check_written(const FunctionSchema& schema, std::span<const c10::IValue> arguments, bool has_memory) {
  struct Given {
    const c10::Argument& argument;
    Tensor tensor;
  };
  std::vector<Given> all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor(arguments[i], [&](const Tensor& t) { all.push_back({schema.arguments()[i], t}); });
  }
  for (size_t t = 0; t < all.size(); ++t) {
    if (!is_written(all[t].argument)) continue;
    check_writable(schema, all[t].argument, all[t].tensor);
    for (size_t i = 0; i < all.size() && has_memory; ++i) {
      TORCH_CHECK(i == t || !overlap(all[i].tensor, all[t].tensor), op_name(schema), ": ", all[t].argument.name(),
                  " must share no memory with ", all[i].argument.name(), ", got an overlap");
    }
  }
}

OnTensors implement_function(torch::Library& library, const Declaration& declaration, const char* name) {
  implement(library, name, DispatchKey::FuncTorchBatched,
            CppFunction::makeFromBoxedFunctor(std::make_unique<FunctionUnderVmap>(declaration)));
  if (writes(declaration)) {
    implement_writing</*IsVariant=*/false>(library, declaration, name);
    return nullptr;
  }
  const auto has_gradient = [&](const Argument& o) {
    return takes_tensors(o.kind) && declaration.is_differentiable(o);
  };
  refuse_backends(library, name, &declaration);
  if (std::none_of(declaration.outputs.begin(), declaration.outputs.end(), has_gradient)) return nullptr;
  auto on_tensors = std::make_shared<c10::KernelFunction>();
  implement(library, name, DispatchKey::Autograd,
            CppFunction::makeFromBoxedFunctor(std::make_unique<FunctionGradients>(on_tensors)));
  return on_tensors;
}

void define_variants(torch::Library& library, const Declaration& f, const std::string& sharding_rule, OutMemory memory,
                     bool in_place) {
  const std::string name(base_name(f));
  std::string out = name + ".out(", self = name + "_(" + written_type(0) + " self";
  for (size_t i = 0; i < f.arguments.size(); ++i) {
    const std::string_view keyword_only = i == f.keyword_only ? "*, " : "";
    (out += i > 0 ? ", " : "") += keyword_only;
    append_argument(out, f.arguments[i]);
    if (i == 0) continue;
    (self += ", ") += keyword_only;
    append_argument(self, f.arguments[i]);
  }
  if (f.keyword_only >= f.arguments.size()) out += ", *";
  for (size_t o = 0; o < f.outputs.size(); ++o) {
    out += ", " + written_type(o) + " out" + (f.outputs.size() == 1 ? "" : std::to_string(o));
  }
  const Variant variant(c10::Dispatcher::singleton().findSchemaOrThrow(std::string(f.name).c_str(), ""), memory);
  std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  library.def((out + ") -> ()").c_str(), std::as_const(tags));
  implement_variant(library, f, name + ".out", variant);
  if (!in_place) return;
  self += ") -> " + (returns_self ? written_type(0) : "()");
  if (returns_self) tags.push_back(in_place_tag);
  library.def(self.c_str(), std::as_const(tags));
  implement_variant(library, f, name + "_", variant);
  if (sharding_rule.empty()) return;
  std::string rule = sharding_rule;
  const size_t arrow = rule.find("->") + 2;
  if (!returns_self) rule.erase(arrow, rule.find(' ') - arrow);
  define_sharding(library, name + "_", rule);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
