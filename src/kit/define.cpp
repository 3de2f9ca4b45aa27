#include "cppcuda/kit/define.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/dtype.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

namespace {

std::string built_without_cuda() {
  return std::string(": this ") + library_name() + " was built without CUDA; build it again with " + cuda_option() +
         "=ON";
}

}  // namespace

void define_text(torch::Library& library, std::string_view prefix, std::string_view name, std::string text) {
  std::string overload(name);
  std::replace(overload.begin(), overload.end(), '.', '_');
  const std::string schema = std::string(prefix) + "." + overload + "() -> str";
  library.def(schema.c_str(), [text = std::move(text)] { return text; });
}

std::string describe(std::string_view text, const Declaration& declaration) {
  std::string result(text), independent;
  const auto line = [&](std::initializer_list<std::string_view> words) {
    result += "\n";
    for (const auto word : words) result += word;
  };
  for (const auto& r : declaration.requirements) {
    line({"reads ", declaration.outputs[r.output].name, " ", declaration.arguments[r.argument].name});
  }
  // The letter of the rows comes first.
  if (declaration.rows != 0) independent += declaration.rows;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    const bool is_independent = (declaration.independent >> (letter - 'A') & 1) != 0;
    if (is_independent && letter != declaration.rows) independent += letter;
  }
  if (!independent.empty()) line({"independent ", independent});
  switch (cast_policy(declaration)) {
    case CastPolicy::promote:
      line({"autocast promote"});
      break;
    case CastPolicy::lower_precision_fp:
      line({"autocast lower_precision_fp"});
      break;
    case CastPolicy::fp32:
      line({"autocast fp32"});
      break;
    case CastPolicy::none:
      break;
  }
  return result;
}

namespace {

// Its operator() gets the Declaration, or null.
struct WithDeclaration : c10::OperatorKernel {
  explicit WithDeclaration(const Declaration* d) : declaration(d) {}
  const Declaration* declaration;
};

struct RefusedBackend final : WithDeclaration {
  using WithDeclaration::WithDeclaration;

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) const {
    const auto& arguments = op.schema().arguments();
    const auto values = torch::jit::last(*stack, arguments.size());
    const char* name = op_name(op.schema());
    const Checker check(name);
    const bool has_cuda = op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
    bool has_tensor = false;
    const auto check_tensor = [&](size_t i, const std::string& argument, const Tensor& t) {
      has_tensor = true;
      if (declaration == nullptr) {
        check.floating(argument, t);
      } else if (i < declaration->arguments.size()) {  // else a tensor to which f.out writes
        check_dtype(check, *declaration, i, argument, t);
      }
      TORCH_CHECK_NOT_IMPLEMENTED(
          !t.is_meta() || declaration == nullptr || declaration->allocates, name,
          ": what it returns for tensors without values does not follow from its declaration; ",
          "kit::define takes a function that returns it, and torch.library.register_fake another");
      TORCH_CHECK(t.is_cpu() || (has_cuda && t.is_cuda()), name, ": ", argument, " must be on cpu",
                  has_cuda ? " or cuda" : "", ", got ", t.device(), t.is_cuda() ? built_without_cuda() : "");
    };
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (values[i].isTensor()) check_tensor(i, arguments[i].name(), values[i].toTensor());
      if (!values[i].isList()) continue;
      const auto list = values[i].toListRef();
      for (size_t e = 0; e < list.size(); ++e) {
        if (list[e].isTensor())
          check_tensor(i, arguments[i].name() + "[" + std::to_string(e) + "]", list[e].toTensor());
      }
    }
    TORCH_CHECK(has_tensor, name, ": there is no tensor among the arguments, whose device would choose the kernel");
    TORCH_CHECK(false, name, ": no kernel for these arguments");
  }
};

struct UnderAutocastKernel final : WithDeclaration {
  UnderAutocastKernel(CastPolicy p, const Declaration* d) : WithDeclaration(d), policy(p) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    const auto device = keys.highestPriorityTypeId() == c10::DispatchKey::AutocastCUDA ? at::kCUDA : at::kCPU;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const size_t count = op.schema().arguments().size();
    c10::IValue* const values = stack->data() + stack->size() - count;
    // Calls f(value, tensor, whether it becomes float32 with any policy) for the tensors that may be cast.
    const auto for_each = [&](auto f) {
      for (size_t i = 0; i < count; ++i) {
        if (!values[i].isTensor()) continue;
        const Tensor& t = values[i].toTensor();
        if (!t.defined() || (t.scalar_type() != at::kFloat && !is_16bit(t.scalar_type()))) continue;
        const Cast cast = declaration == nullptr ? Cast::by_policy : cast_of(*declaration, i);
        if (cast != Cast::none) f(values[i], t, cast == Cast::to_float32);
      }
    };
    std::optional<at::ScalarType> dtype;
    if (policy == CastPolicy::fp32) dtype = at::kFloat;
    if (policy == CastPolicy::lower_precision_fp) dtype = at::autocast::get_autocast_dtype(device);
    if (policy == CastPolicy::promote) {
      for_each([&](const c10::IValue&, const Tensor& t, bool is_wide) {
        if (!is_wide) dtype = c10::promoteTypes(dtype.value_or(t.scalar_type()), t.scalar_type());
      });
    }
    for_each([&](c10::IValue& value, const Tensor& t, bool is_wide) {
      if (is_wide || dtype) value = at::autocast::cached_cast(is_wide ? at::kFloat : *dtype, t, device);
    });
    op.callBoxed(stack);
  }

  CastPolicy policy;
};

}  // namespace

void refuse_backends(torch::Library& library, const char* name, const Declaration* declaration) {
  library.impl(
      name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                            torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RefusedBackend>(declaration))));
}

void define_autocast(torch::Library& library, const char* name, CastPolicy policy, const Declaration* declaration) {
  if (policy == CastPolicy::none) return;
  for (const auto key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}) {
    library.impl(name, torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(
                                                std::make_unique<UnderAutocastKernel>(policy, declaration))));
  }
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
