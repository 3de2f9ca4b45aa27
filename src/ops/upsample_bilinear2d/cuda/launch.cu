#include <algorithm>
#include <optional>
#include <utility>

#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/cuda/width.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/upsample_bilinear2d/cuda/kernel.cuh"
#include "ops/upsample_bilinear2d/cuda/launch.h"
#include "ops/upsample_bilinear2d/cuda/tile_kernel.cuh"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// Whether int can hold every position, plus a few steps, and every offset within a row of the source.
template <class T>
bool fits_int32(const Params<T>& p) {
  constexpr int64_t limit = 1 << 30;
  const int64_t longest = std::max({p.y.in, p.y.out, p.x.in, p.x.out});
  return longest <= limit && p.strides.w <= limit / longest;
}

// Calls f.operator()<N, K, ChannelsLast, Index>(launch). planes: whether a thread may compute several planes.
template <class T, class F>
void with_launch(const Params<T>& p, int64_t height, int64_t width, bool planes, F f) {
  const bool narrow = fits_int32(p);
  const bool aligned = p.channels_last && p.strides.c == 1 && kit::is_aligned16(p.target, {}) &&
                       kit::is_aligned16(p.source, {p.strides.n, p.strides.h, p.strides.w});
  const auto launch = image_launch({p.batch, p.channels, height, width}, sizeof(T), p.channels_last, narrow && aligned,
                                   narrow && planes);
  if (p.channels_last) {
    if (!narrow) return f.template operator()<1, 1, true, int64_t>(launch);
    launch.width > 1 ? f.template operator()<kit::wide<T>, 1, true, int>(launch)
                     : f.template operator()<1, 1, true, int>(launch);
    return;
  }
  if (!narrow) return f.template operator()<1, 1, false, int64_t>(launch);
  launch.planes > 1 ? f.template operator()<1, planes_per_thread(sizeof(T)), false, int>(launch)
                    : f.template operator()<1, 1, false, int>(launch);
}

// Whether rows of the source can be read N values at a time, up to their end.
template <int N, class T>
bool has_packs(const Params<T>& p, int64_t source_width) {
  return kit::is_aligned(p.source, {p.strides.n, p.strides.c, p.strides.h, source_width}, N * sizeof(T));
}

// The tiles, if planes can go through shared memory.
template <class T>
std::optional<Tiles> tiles_of(const Params<T>& p, bool backward) {
  const auto [height, width] = backward ? std::pair(p.y.in, p.x.in) : std::pair(p.y.out, p.x.out);
  if (p.channels_last || !fits_int32(p) || p.strides.w != 1 || !kit::is_aligned16(p.target, {})) return std::nullopt;
  const bool packs = has_packs<kit::wide<T>>(p, backward ? p.x.out : p.x.in);
  return tile_launch({p.batch, p.channels, height, width}, p.x, sizeof(T), packs, backward);
}

template <class T>
void forward(const ForwardParams<T>& p, kit::CudaStream& stream) {
  if (const auto tiles = tiles_of(p, /*backward=*/false)) {
    constexpr int W = tile_columns<kit::opmath<T>>;
    const auto kernel = tiles->packs ? forward_tile_kernel<kit::wide<T>, W, T> : forward_tile_kernel<1, 2, T>;
    return kit::launch(kernel, tiles->shape, stream, p, *tiles);
  }
  with_launch(p, p.y.out, p.x.out, /*planes=*/true,
              [&]<int N, int K, bool ChannelsLast, class Index>(const ImageLaunch& launch) {
                kit::launch(forward_kernel<N, K, ChannelsLast, Index, T>, launch.shape, stream, p, launch.parts);
              });
}

template <class T>
void backward(const BackwardParams<T>& p, kit::CudaStream& stream) {
  if (const auto tiles = tiles_of(p, /*backward=*/true)) {
    constexpr int W = tile_columns<kit::opmath<T>>;
    const auto kernel = tiles->packs               ? backward_tile_kernel<kit::wide<T>, W, T>
                        : has_packs<2>(p, p.x.out) ? backward_tile_kernel<2, 1, T>
                                                   : backward_tile_kernel<1, 1, T>;
    return kit::launch(kernel, tiles->shape, stream, p, *tiles);
  }
  with_launch(p, p.y.in, p.x.in, /*planes=*/p.strides.w == 1 && p.x.out >= columns_together,
              [&]<int N, int K, bool ChannelsLast, class Index>(const ImageLaunch& launch) {
                kit::launch(backward_kernel<N, K, ChannelsLast, Index, T>, launch.shape, stream, p, launch.parts);
              });
}

[[maybe_unused]] const bool added = kit::for_each_dtype([]<class T>() {
  kit::add_to_table(&forward<T>);
  kit::add_to_table(&backward<T>);
});

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
