#include "cppcuda/kit/define.h"

#include <ATen/autocast_mode.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/dtype.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace {

std::string built_without_cuda() {
  return std::string(": this ") + library_name() + " was built without CUDA; build it again with " + cuda_option() +
         "=ON";
}

}  // namespace

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

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
