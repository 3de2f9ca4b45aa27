#include <torch/library.h>

#include <algorithm>

#include "core/launch.cuh"
#include "core/width.h"
#include "ops/upsample_bilinear2d/adapter.h"
#include "ops/upsample_bilinear2d/kernel.cuh"
#include "ops/upsample_bilinear2d/launch.h"
#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// Whether int holds every position, with room for a few steps more, and every offset within a row of the source.
template <class T>
bool is_narrow(const Params<T>& p) {
  constexpr int64_t most = 1 << 30;
  const int64_t longest = std::max({p.y.in, p.y.out, p.x.in, p.x.out});
  return longest <= most && p.strides.w <= most / longest;
}

// Calls f.operator()<N, K, ChannelsLast, Index>(launch). Columns: whether the kernel can take as many columns as an
// access holds.
template <bool Columns, class T, class F>
void with_launch(const Params<T>& p, int64_t height, int64_t width, F f) {
  const bool narrow = is_narrow(p);
  const bool aligned = p.channels_last ? p.strides.c == 1 && core::is_aligned16(p.target, {}) &&
                                             core::is_aligned16(p.source, {p.strides.n, p.strides.h, p.strides.w})
                                       : Columns && core::is_aligned16(p.target, {width});
  const bool adjacent = Columns || (p.strides.w == 1 && p.x.out >= columns_together);
  const auto launch = image_launch({p.batch, p.channels, height, width}, sizeof(T), p.channels_last, narrow && aligned,
                                   narrow && adjacent);
  constexpr int wide = core::wide<T>;
  if (p.channels_last) {
    if (!narrow) return f.template operator()<1, 1, true, int64_t>(launch);
    launch.width > 1 ? f.template operator()<wide, 1, true, int>(launch)
                     : f.template operator()<1, 1, true, int>(launch);
    return;
  }
  if (!narrow) return f.template operator()<1, 1, false, int64_t>(launch);
  if constexpr (Columns) {
    if (launch.width > 1) return f.template operator()<wide, planes_per_thread(wide, sizeof(T)), false, int>(launch);
  }
  launch.planes > 1 ? f.template operator()<1, planes_per_thread(1, sizeof(T)), false, int>(launch)
                    : f.template operator()<1, 1, false, int>(launch);
}

Tensor forward_cuda(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
                    std::optional<double> scale_h, std::optional<double> scale_w) {
  return forward(input, output_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    with_launch</*Columns*/ true>(
        p, p.y.out, p.x.out, [&]<int N, int K, bool ChannelsLast, class Index>(const ImageLaunch& launch) {
          core::launch(forward_kernel<N, K, ChannelsLast, Index, T>, launch.shape, input.device(), p, launch.parts);
        });
  });
}

Tensor backward_cuda(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                     std::optional<double> scale_h, std::optional<double> scale_w) {
  return backward(grad, input_size, mode, scale_h, scale_w, [&]<class T>(const Params<T>& p) {
    with_launch</*Columns*/ false>(
        p, p.y.in, p.x.in, [&]<int N, int K, bool ChannelsLast, class Index>(const ImageLaunch& launch) {
          core::launch(backward_kernel<N, K, ChannelsLast, Index, T>, launch.shape, grad.device(), p, launch.parts);
        });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, TORCH_FN(forward_cuda));
  m.impl(Backward::name, TORCH_FN(backward_cuda));
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
