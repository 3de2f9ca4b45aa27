#include <torch/library.h>

#include "core/cuda.h"
#include "ops/upsample_bilinear2d/adapter.h"
#include "ops/upsample_bilinear2d/cuda_kernel.h"
#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

Tensor forward_cuda(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
                    std::optional<double> scale_h, std::optional<double> scale_w) {
  return forward(input, output_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    core::on_current_stream(input.device(), [&](core::CudaStream& stream) { CudaKernel<T>::forward(p, stream); });
  });
}

Tensor backward_cuda(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                     std::optional<double> scale_h, std::optional<double> scale_w) {
  return backward(grad, input_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    core::on_current_stream(grad.device(), [&](core::CudaStream& stream) { CudaKernel<T>::backward(p, stream); });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
