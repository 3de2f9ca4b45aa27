#pragma once

// A thread computes one pixel of the target, and reads what it needs of the source: no atomics in backward either. In
// channels_last it does so for N channels, which are one access; else for K channels one by one, N = 1, so that what it
// takes to find the pixel and its weights serves all of them.

#include "core/divide.h"
#include "core/launch_shape.h"
#include "core/opmath.h"
#include "core/pack.cuh"
#include "ops/upsample_bilinear2d/math.h"
#include "ops/upsample_bilinear2d/params.h"

namespace cppcuda::ops::upsample_bilinear2d {

// A pixel, and the first of the channels of it that a thread computes.
struct Place {
  int64_t n, c, y, x;
};

// `channels` is how many a thread computes; the target is height x width pixels.
template <class T>
__device__ Place place_of(const Params<T>& p, int64_t index, int channels, int64_t height, int64_t width) {
  const int64_t groups = (p.channels + channels - 1) / channels;
  if (p.channels_last) {
    const auto [pixel, group] = core::divide(index, groups);
    const auto [row, x] = core::divide(pixel, width);
    const auto [n, y] = core::divide(row, height);
    return {n, group * channels, y, x};
  }
  const auto [row, x] = core::divide(index, width);
  const auto [plane, y] = core::divide(row, height);
  const auto [n, group] = core::divide(plane, groups);
  return {n, group * channels, y, x};
}

// Where the K channels lie in the source; past the last channel the last one again, which is not stored.
template <int K, class T>
__device__ void find_channels(const Params<T>& p, const Place& at, const T* (&source)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    source[k] = p.source + at.n * p.strides.n + min(at.c + k, p.channels - 1) * p.strides.c;
  }
}

template <int N, int K, class T>
__device__ void store_channels(const Params<T>& p, const Place& at, int64_t height, int64_t width,
                               const core::Pack<T, N> (&out)[K]) {
  if (p.channels_last) {
    core::store(p.target + ((at.n * height + at.y) * width + at.x) * p.channels + at.c, out[0]);
    return;
  }
  T* target = p.target + ((at.n * p.channels + at.c) * height + at.y) * width + at.x;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (at.c + k < p.channels) core::store(target + k * height * width, out[k]);
  }
}

// N > 1 needs channels_last, channels next to each other, 16-byte alignment, and a multiple of N channels.
template <int N, int K, class T>
__global__ void __launch_bounds__(core::threads_per_block) forward_kernel(Params<T> p, int64_t work) {
  using A = core::opmath<T>;
  for (int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; index < work;
       index += int64_t{gridDim.x} * blockDim.x) {
    const Place at = place_of(p, index, N * K, p.y.out, p.x.out);
    const Tap<A> row = p.y.tap(at.y), column = p.x.tap(at.x);
    const T* source[K];
    find_channels(p, at, source);
    const int64_t top = row.lower * p.strides.h, bottom = row.upper * p.strides.h;
    const int64_t left = column.lower * p.strides.w, right = column.upper * p.strides.w;
    core::Pack<T, N> corner[K][4], out[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      corner[k][0] = core::load<N>(source[k] + top + left);
      corner[k][1] = core::load<N>(source[k] + top + right);
      corner[k][2] = core::load<N>(source[k] + bottom + left);
      corner[k][3] = core::load<N>(source[k] + bottom + right);
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const auto value = [&](int c) { return static_cast<A>(corner[k][c].value[i]); };
        const A upper = column.lower_weight * value(0) + column.upper_weight * value(1);
        const A lower = column.lower_weight * value(2) + column.upper_weight * value(3);
        out[k].value[i] = static_cast<T>(row.lower_weight * upper + row.upper_weight * lower);
      }
    }
    store_channels(p, at, p.y.out, p.x.out, out);
  }
}

template <int N, int K, class T>
__global__ void __launch_bounds__(core::threads_per_block, 2) backward_kernel(Params<T> p, int64_t work) {
  using A = core::opmath<T>;
  constexpr int X = K > 1 ? 1 : 4;  // pixels of a row whose loads are in flight together
  for (int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; index < work;
       index += int64_t{gridDim.x} * blockDim.x) {
    const Place at = place_of(p, index, N * K, p.y.in, p.x.in);
    const Range rows = p.y.outputs_of(at.y), columns = p.x.outputs_of(at.x);
    const T* source[K];
    find_channels(p, at, source);
    A sum[K][N] = {};
    for (int64_t y = rows.first; y < rows.last; ++y) {
      const A by_row = p.y.tap(y).weight(at.y);
      for (int64_t x = columns.first; x < columns.last; x += X) {
        core::Pack<T, N> grad[X][K];
#pragma unroll
        for (int j = 0; j < X; ++j) {
          const int64_t pixel = y * p.strides.h + min(x + j, columns.last - 1) * p.strides.w;
#pragma unroll
          for (int k = 0; k < K; ++k) {
            grad[j][k] = core::load<N>(source[k] + pixel);
          }
        }
#pragma unroll
        for (int j = 0; j < X; ++j) {
          const bool inside = x + j < columns.last;
          const A weight = inside ? by_row * p.x.tap(x + j).weight(at.x) : A(0);
#pragma unroll
          for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int i = 0; i < N; ++i) sum[k][i] += weight * (inside ? static_cast<A>(grad[j][k].value[i]) : A(0));
          }
        }
      }
    }
    core::Pack<T, N> out[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int i = 0; i < N; ++i) out[k].value[i] = static_cast<T>(sum[k][i]);
    }
    store_channels(p, at, p.y.in, p.x.in, out);
  }
}

}  // namespace cppcuda::ops::upsample_bilinear2d
