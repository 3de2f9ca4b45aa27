#include "cppcuda/kit/define.h"

#include "cppcuda/kit/check.h"

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

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
