#pragma once

// One thread writes N channels of one pixel of the target, and reads what it needs of the source: no atomics in
// backward either.

#include "core/launch_shape.h"
#include "core/opmath.h"
#include "core/pack.h"
#include "ops/upsample_bilinear2d/math.h"
#include "ops/upsample_bilinear2d/params.h"

namespace cppcuda::ops::upsample_bilinear2d {

// A pixel of the target, and the first of its N channels.
struct Position {
  int64_t n, c, y, x;
};

// N values that lie next to each other in the target, which is height x width pixels.
template <int N, class T>
__device__ Position position_of(const Params<T>& p, int64_t pack, int64_t height, int64_t width) {
  if (p.channels_last) {
    const int64_t packs = p.channels / N;
    const int64_t pixel = pack / packs, row = pixel / width;
    return {row / height, pack % packs * N, row % height, pixel % width};
  }
  const int64_t row = pack / width, plane = row / height;
  return {plane / p.channels, plane % p.channels, row % height, pack % width};
}

template <class T>
__device__ const T* source_of(const Params<T>& p, const Position& at) {
  return p.source + at.n * p.strides.n + at.c * p.strides.c;
}

// N > 1 needs channels_last, channels next to each other, 16-byte alignment, and a multiple of N channels.
template <int N, class T>
__global__ void __launch_bounds__(core::threads_per_block) forward_kernel(Params<T> p, int64_t packs) {
  using A = core::opmath<T>;
  for (int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; pack < packs;
       pack += int64_t{gridDim.x} * blockDim.x) {
    const Position at = position_of<N>(p, pack, p.y.out, p.x.out);
    const Tap<A> row = p.y.tap(at.y), column = p.x.tap(at.x);
    const T* source = source_of(p, at);
    const T* top = source + row.lower * p.strides.h;
    const T* bottom = source + row.upper * p.strides.h;
    const auto top_left = core::load<N>(top + column.lower * p.strides.w);
    const auto top_right = core::load<N>(top + column.upper * p.strides.w);
    const auto bottom_left = core::load<N>(bottom + column.lower * p.strides.w);
    const auto bottom_right = core::load<N>(bottom + column.upper * p.strides.w);
    core::Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const A top = column.lower_weight * static_cast<A>(top_left.value[i]) +
                    column.upper_weight * static_cast<A>(top_right.value[i]);
      const A bottom = column.lower_weight * static_cast<A>(bottom_left.value[i]) +
                       column.upper_weight * static_cast<A>(bottom_right.value[i]);
      out.value[i] = static_cast<T>(row.lower_weight * top + row.upper_weight * bottom);
    }
    core::store(p.target + pack * N, out);
  }
}

template <int N, class T>
__global__ void __launch_bounds__(core::threads_per_block) backward_kernel(Params<T> p, int64_t packs) {
  using A = core::opmath<T>;
  for (int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; pack < packs;
       pack += int64_t{gridDim.x} * blockDim.x) {
    const Position at = position_of<N>(p, pack, p.y.in, p.x.in);
    const Range rows = p.y.outputs_of(at.y), columns = p.x.outputs_of(at.x);
    const T* source = source_of(p, at);
    A sum[N] = {};
    for (int64_t y = rows.first; y < rows.last; ++y) {
      const A by_row = p.y.tap(y).weight(at.y);
      for (int64_t x = columns.first; x < columns.last; ++x) {
        const A weight = by_row * p.x.tap(x).weight(at.x);
        const auto grad = core::load<N>(source + y * p.strides.h + x * p.strides.w);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += weight * static_cast<A>(grad.value[i]);
      }
    }
    core::Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.value[i] = static_cast<T>(sum[i]);
    core::store(p.target + pack * N, out);
  }
}

}  // namespace cppcuda::ops::upsample_bilinear2d
