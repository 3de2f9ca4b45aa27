#include <torch/library.h>

#include "core/launch.cuh"
#include "ops/upsample_bilinear2d/adapter.h"
#include "ops/upsample_bilinear2d/kernel.cuh"
#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// Calls f(std::integral_constant<int, N>) with the widest N that the memory allows.
template <class T, class F>
void with_width(const Params<T>& p, F f) {
  const bool allowed = p.channels_last && p.channels % core::wide<T> == 0 && p.strides.c == 1 &&
                       core::is_aligned16(p.source, {p.strides.n, p.strides.h, p.strides.w}) &&
                       core::is_aligned16(p.target, {});
  core::with_width<core::wide<T>>(allowed, f);
}

Tensor forward_cuda(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
                    std::optional<double> scale_h, std::optional<double> scale_w) {
  return forward(input, output_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    with_width(p, [&](auto n) {
      const int64_t packs = p.batch * p.channels * p.y.out * p.x.out / n;
      core::launch(forward_kernel<n, T>, core::stride_launch(packs), input.device(), p, packs);
    });
  });
}

Tensor backward_cuda(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                     std::optional<double> scale_h, std::optional<double> scale_w) {
  return backward(grad, input_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    with_width(p, [&](auto n) {
      const int64_t packs = p.batch * p.channels * p.y.in * p.x.in / n;
      core::launch(backward_kernel<n, T>, core::stride_launch(packs), grad.device(), p, packs);
    });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
