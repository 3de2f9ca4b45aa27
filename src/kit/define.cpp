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

void refuse_backend(const c10::OperatorHandle& op, torch::jit::Stack* stack, unsigned indices) {
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(*stack, arguments.size());
  const char* name = op_name(op.schema());
  const Checker check(name);
  const bool has_cuda = op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!values[i].isTensor()) continue;
    const Tensor& t = values[i].toTensor();
    const char* const argument = arguments[i].name().c_str();
    (indices >> i & 1) != 0 ? check.indices(argument, t) : check.floating(argument, t);
    TORCH_CHECK(t.is_cpu() || (has_cuda && t.is_cuda()), name, ": ", arguments[i].name(), " must be on cpu",
                has_cuda ? " or cuda" : "", ", got ", t.device(), t.is_cuda() ? built_without_cuda() : "");
  }
  TORCH_CHECK(false, name, ": no kernel for these arguments");
}

void run_under_autocast(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack,
                        CastPolicy policy, unsigned wide) {
  const auto device = keys.highestPriorityTypeId() == c10::DispatchKey::AutocastCUDA ? at::kCUDA : at::kCPU;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const size_t count = op.schema().arguments().size();
  c10::IValue* const values = stack->data() + stack->size() - count;
  // Calls f(value, tensor, whether it is wide) for the tensors that a policy may cast.
  const auto for_each = [&](auto f) {
    for (size_t i = 0; i < count; ++i) {
      if (!values[i].isTensor()) continue;
      const Tensor& t = values[i].toTensor();
      if (!t.defined() || (t.scalar_type() != at::kFloat && !is_16bit(t.scalar_type()))) continue;
      f(values[i], t, (wide >> i & 1) != 0);
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

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
