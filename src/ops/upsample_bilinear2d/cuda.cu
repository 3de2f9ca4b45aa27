#include <torch/library.h>

#include "core/launch.cuh"
#include "core/width.h"
#include "ops/upsample_bilinear2d/adapter.h"
#include "ops/upsample_bilinear2d/kernel.cuh"
#include "ops/upsample_bilinear2d/launch.h"
#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// Calls f(N, K, launch): values per access, and channels that a thread takes one by one.
template <class T, class F>
void with_launch(const Params<T>& p, int64_t pixels, F f) {
  const bool packs = p.channels_last && p.strides.c == 1 &&
                     core::is_aligned16(p.source, {p.strides.n, p.strides.h, p.strides.w}) &&
                     core::is_aligned16(p.target, {});
  const auto launch = image_launch(p.batch, p.channels, pixels, sizeof(T), p.channels_last, packs);
  constexpr std::integral_constant<int, 1> one;
  if (launch.width > 1) return f(std::integral_constant<int, core::wide<T>>(), one, launch);
  launch.channels > 1 ? f(one, std::integral_constant<int, channels_per_thread>(), launch) : f(one, one, launch);
}

Tensor forward_cuda(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
                    std::optional<double> scale_h, std::optional<double> scale_w) {
  return forward(input, output_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    with_launch(p, p.y.out * p.x.out, [&](auto n, auto k, const ImageLaunch& launch) {
      core::launch(forward_kernel<n, k, T>, launch.shape, input.device(), p, launch.work);
    });
  });
}

Tensor backward_cuda(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                     std::optional<double> scale_h, std::optional<double> scale_w) {
  return backward(grad, input_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    with_launch(p, p.y.in * p.x.in, [&](auto n, auto k, const ImageLaunch& launch) {
      core::launch(backward_kernel<n, k, T>, launch.shape, grad.device(), p, launch.work);
    });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
