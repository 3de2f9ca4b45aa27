#include <torch/library.h>

#include "core/cuda.h"
#include "ops/lltm_cell/adapter.h"
#include "ops/lltm_cell/cuda_kernel.h"
#include "ops/lltm_cell/launch.h"
#include "ops/lltm_cell/schema.h"

namespace cppcuda::ops::lltm_cell {
namespace {

std::tuple<Tensor, Tensor, Tensor> run_forward(const std::array<core::Output, 3>& outputs, const Tensor& input,
                                               const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                               const Tensor& cx) {
  auto run_small = [&]<class T, class C>(const SmallForwardParams<T, C>& p) {
    core::on_current_stream(cx.device(), [&](core::CudaStream& stream) { CudaKernel<T, C>::small_forward(p, stream); });
  };
  auto run = [&]<class T, class C>(const ForwardParams<T, C>& p) {
    core::on_current_stream(cx.device(), [&](core::CudaStream& stream) { CudaKernel<T, C>::forward(p, stream); });
  };
  return forward(outputs, input, weight, bias, hx, cx, is_small, run_small, run);
}

std::tuple<Tensor, Tensor, Tensor> cell_cuda(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                             const Tensor& hx, const Tensor& cx) {
  return run_forward(cell_shape(input, weight, bias, hx, cx), input, weight, bias, hx, cx);
}

std::tuple<Tensor, Tensor> forward_cuda(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                        const Tensor& cx) {
  auto [hy, cy, gates] = run_forward(outputs("lltm_cell", input, weight, bias, hx, cx), input, weight, bias, hx, cx);
  return {hy, cy};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward_cuda(const OptionalTensor& grad_hy,
                                                                 const OptionalTensor& grad_cy,
                                                                 const OptionalTensor& grad_gates, const Tensor& gates,
                                                                 const OptionalTensor& input,
                                                                 const OptionalTensor& weight, const OptionalTensor& hx,
                                                                 const Tensor& cx, c10::List<bool> output_mask) {
  const auto outputs = backward_shape(grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask);
  auto run_small = [&]<class T, class C>(const SmallBackwardParams<T, C>& p) {
    core::on_current_stream(cx.device(),
                            [&](core::CudaStream& stream) { CudaKernel<T, C>::small_backward(p, stream); });
  };
  auto run = [&]<class T, class C>(const BackwardParams<T, C>& p) {
    core::on_current_stream(cx.device(), [&](core::CudaStream& stream) { CudaKernel<T, C>::backward(p, stream); });
  };
  return backward(outputs, grad_hy, grad_cy, grad_gates, gates, input, weight, hx, cx, output_mask, is_small, run_small,
                  run);
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Cell::name, TORCH_FN(cell_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
