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

// Whether int holds every position, with room for a few steps more, and every offset within a row of the source.
template <class T>
bool fits_int32(const Params<T>& p) {
  constexpr int64_t most = 1 << 30;
  const int64_t longest = std::max({p.y.in, p.y.out, p.x.in, p.x.out});
  return longest <= most && p.strides.w <= most / longest;
}

// Launches one of the kernels of strips. kernel_of<N, K, ChannelsLast, Index>() is the kernel, of up to MaxPlanes
// planes.
template <int MaxPlanes, template <class> class P, class T, class KernelOf>
void launch_strips(const P<T>& p, int64_t height, int64_t width, kit::CudaStream& stream, KernelOf kernel_of) {
  const bool narrow = fits_int32(p);
  const bool aligned = p.channels_last && p.strides.c == 1 && kit::is_aligned16(p.target, {}) &&
                       kit::is_aligned16(p.source, {p.strides.n, p.strides.h, p.strides.w});
  const auto kernel = [&](int width, int planes) {
    if (p.channels_last) {
      if (!narrow) return kernel_of.template operator()<1, 1, true, int64_t>();
      return width > 1 ? kernel_of.template operator()<kit::pack_size<T>, 1, true, int>()
                       : kernel_of.template operator()<1, 1, true, int>();
    }
    if (!narrow) return kernel_of.template operator()<1, 1, false, int64_t>();
    return planes > 1 ? kernel_of.template operator()<1, MaxPlanes, false, int>()
                      : kernel_of.template operator()<1, 1, false, int>();
  };
  const auto launch =
      image_launch({p.batch, p.channels, height, width}, sizeof(T), p.channels_last, narrow && aligned,
                   narrow ? MaxPlanes : 1, [&](int width, int planes) {
                     return kit::resident_blocks(kernel(width, planes), kit::threads_per_block, 0, stream);
                   });
  kit::launch(kernel(launch.width, launch.planes), launch.shape, stream, p, launch.parts);
}

// Whether rows of the source can be read N values at a time, and end with such an access.
template <int N, class T>
bool has_packs(const Params<T>& p, int64_t source_width) {
  return kit::is_aligned(p.source, {p.strides.n, p.strides.c, p.strides.h, source_width}, N * sizeof(T));
}

// For images whose planes go through shared memory. kernel(packs) is the kernel of tiles. Returns whether it was
// launched.
template <template <class> class P, class T, class Kernel>
bool launch_tiles(const P<T>& p, bool backward, kit::CudaStream& stream, Kernel kernel) {
  const auto [height, width] = backward ? std::pair(p.y.in, p.x.in) : std::pair(p.y.out, p.x.out);
  if (p.channels_last || !fits_int32(p) || p.strides.w != 1 || !kit::is_aligned16(p.target, {})) return false;
  const bool packs = has_packs<kit::pack_size<T>>(p, backward ? p.x.out : p.x.in);
  const auto tiles = tile_launch({p.batch, p.channels, height, width}, p.x, sizeof(T), packs, backward,
                                 [&](bool packs, unsigned threads, unsigned shared_bytes) {
                                   return kit::resident_blocks(kernel(packs), threads, shared_bytes, stream);
                                 });
  if (!tiles) return false;
  kit::launch(kernel(tiles->packs), tiles->shape, stream, p, *tiles);
  return true;
}

template <class T>
void forward(const ForwardParams<T>& p, kit::CudaStream& stream) {
  constexpr int W = tile_columns<kit::opmath<T>>;
  const auto tile_kernel = [](bool packs) {
    return packs ? forward_tile_kernel<kit::pack_size<T>, W, T> : forward_tile_kernel<1, 2, T>;
  };
  if (launch_tiles(p, /*backward=*/false, stream, tile_kernel)) return;
  launch_strips<planes_per_thread(sizeof(T))>(
      p, p.y.out, p.x.out, stream,
      []<int N, int K, bool ChannelsLast, class Index>() { return forward_kernel<N, K, ChannelsLast, Index, T>; });
}

template <class T>
void backward(const BackwardParams<T>& p, kit::CudaStream& stream) {
  constexpr int W = tile_columns<kit::opmath<T>>;
  // Reading pairs of columns saves 3 to 10 % of the instructions of a row (SASS for sm_90; no time was measured).
  const auto tile_kernel = [&](bool packs) {
    return packs                      ? backward_tile_kernel<kit::pack_size<T>, W, T>
           : has_packs<2>(p, p.x.out) ? backward_tile_kernel<2, 1, T>
                                      : backward_tile_kernel<1, 1, T>;
  };
  if (launch_tiles(p, /*backward=*/true, stream, tile_kernel)) return;
  launch_strips<1>(p, p.y.in, p.x.in, stream, []<int N, int, bool ChannelsLast, class Index>() {
    return backward_kernel<N, ChannelsLast, Index, T>;
  });
}

[[maybe_unused]] const bool added = kit::for_each_dtype([]<class T>() {
  kit::add_to_table(&forward<T>);
  kit::add_to_table(&backward<T>);
});

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
