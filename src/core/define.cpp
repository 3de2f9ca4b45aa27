#include "core/define.h"

namespace cppcuda::core {

void refuse_backend(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(*stack, arguments.size());
  const std::string& full_name = op.schema().name();
  const std::string name = full_name.substr(full_name.find("::") + 2);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!values[i].isTensor() || !values[i].toTensor().defined()) continue;
    const Tensor& t = values[i].toTensor();
    TORCH_CHECK(t.layout() == at::kStrided, name, ": ", arguments[i].name(),
                " must be a dense (strided) tensor, got layout ", t.layout());
    TORCH_CHECK(!t.is_quantized(), name, ": ", arguments[i].name(),
                " must be of dtype float64, float32, float16 or bfloat16, got ",
                c10::getDtypeNames(t.scalar_type()).first);
#ifdef CPPCUDA_CUDA
    TORCH_CHECK(t.is_cpu() || t.is_cuda(), name, ": ", arguments[i].name(), " must be on cpu or cuda, got ",
                t.device());
#else
    TORCH_CHECK(t.is_cpu(), name, ": ", arguments[i].name(), " must be on cpu, got ", t.device(),
                t.is_cuda() ? ": this cppcuda was built without CUDA; build it again with CPPCUDA_WITH_CUDA=ON" : "");
#endif
  }
  TORCH_CHECK(false, name, ": no kernel for these arguments");
}

}  // namespace cppcuda::core
