#include <torch/library.h>

#include "core/cuda.h"
#include "ops/trilinear/adapter.h"
#include "ops/trilinear/cuda_kernel.h"
#include "ops/trilinear/schema.h"

namespace cppcuda::ops::trilinear {
namespace {

Tensor forward_cuda(const Tensor& feats, const Tensor& points) {
  return forward(feats, points, [&]<class T, class P>(const ForwardParams<T, P>& p) {
    core::on_current_stream(feats.device(), [&](core::CudaStream& stream) { CudaKernel<T, P>::forward(p, stream); });
  });
}

std::tuple<Tensor, Tensor> backward_cuda(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                         c10::List<bool> output_mask) {
  return backward(grad, feats, points, output_mask, [&]<class T, class P>(const BackwardParams<T, P>& p) {
    core::on_current_stream(grad.device(), [&](core::CudaStream& stream) { CudaKernel<T, P>::backward(p, stream); });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
