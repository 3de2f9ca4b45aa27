#pragma once

// A thread computes a strip of the target, one access wide, row by row (launch.h). It computes columns and weights once
// for all rows, and interpolates a row of the source along x once for all rows of the target that need it. Every value
// of the target belongs to one thread, so backward needs no atomics either. The kernels of this file read global
// memory; those of tile_kernel.cuh stage planes in shared memory.

#include "cppcuda/kit/cuda/global_memory.cuh"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "ops/upsample_bilinear2d/cuda/launch.h"
#include "ops/upsample_bilinear2d/math.h"
#include "ops/upsample_bilinear2d/params.h"

namespace cppcuda::ops::upsample_bilinear2d {

// Calls f(k, n) for each of N adjacent values in K planes.
template <int N, int K, class F>
__device__ void for_each_value(F f) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int n = 0; n < N; ++n) f(k, n);
  }
}

// N adjacent values in each of K planes. In channels_last they are channels (and K is 1), in NCHW columns.
template <int N, int K, bool ChannelsLast, class Index, class T>
struct Strip {
  using A = kit::opmath<T>;

  const T* source[K];  // at row 0, column 0, until it is moved
  T* target;           // at the next row to write
  int64_t target_row, target_plane;
  int planes;  // the number of valid planes, up to K
  Index column, first_row, last_row;

  // The target is height x width pixels.
  __device__ Strip(const Params<T>& p, const Parts& parts, const Parts::Part& part, Index height, Index width) {
    first_row = static_cast<Index>(part.row);
    last_row = static_cast<Index>(min(part.row + parts.segment_rows, int64_t{height}));
    if constexpr (ChannelsLast) {
      const auto [x, pack] = parts.channels.divide(part.strip);
      source[0] = p.source + part.image * p.strides.n + pack * N * p.strides.c;
      target_row = width * p.channels;
      target_plane = 0;
      target = p.target + (part.image * height + first_row) * target_row + part.strip * N;
      planes = 1;
      column = static_cast<Index>(x);
    } else {
      const int64_t first = part.image * K;
      planes = static_cast<int>(min(int64_t{K}, p.batch * p.channels - first));
      auto [n, c] = parts.channels.divide(first);
      const T* plane = p.source + n * p.strides.n + c * p.strides.c;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        source[k] = plane;
        if (k + 1 >= planes) continue;  // planes past the last one repeat it, and are not stored
        const bool next_image = ++c == p.channels;
        plane += next_image ? p.strides.n - (p.channels - 1) * p.strides.c : p.strides.c;
        if (next_image) c = 0;
      }
      target_row = width;
      target_plane = int64_t{height} * width;
      column = static_cast<Index>(part.strip * N);
      target = p.target + first * target_plane + first_row * target_row + column;
    }
  }

  // Pointers advance, because the compiler makes longer dependency chains of an offset that is added to all addresses.
  __device__ void move_source(int64_t distance) {
#pragma unroll
    for (int k = 0; k < K; ++k) source[k] += distance;
  }

  __device__ void store_next_row(const A (&values)[K][N]) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      kit::Pack<T, N> out;
#pragma unroll
      for (int n = 0; n < N; ++n) out.value[n] = static_cast<T>(values[k][n]);
      if (k < planes) kit::store(target + k * target_plane, out);
    }
    target += target_row;
  }
};

// Rows of the source, interpolated along x for a strip of the target.
template <int N, int K, class Index, class T>
struct Interpolated {
  using A = kit::opmath<T>;
  Tap<A, Index> tap;
  Index lower, upper;  // in elements

  __device__ Interpolated(const Axis<A, Index>& x, Index column, int64_t step)
      : tap(x.tap(column)), lower(tap.lower * static_cast<Index>(step)), upper(tap.upper * static_cast<Index>(step)) {}

  __device__ void load_row(const T* const (&source)[K], A (&to)[K][N]) const {
    kit::Pack<T, N> left[K], right[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      left[k] = kit::load<N>(source[k] + lower);
      right[k] = kit::load<N>(source[k] + upper);
    }
    for_each_value<N, K>([&](int k, int n) {
      to[k][n] = interpolate(kit::widen<A>(left[k], n), kit::widen<A>(right[k], n), tap.lower_weight, tap.upper_weight);
    });
  }
};

// Computes the rows of the strip from the rows that `source` loads.
template <int N, int K, bool ChannelsLast, class Index, class T, class Source, class A>
__device__ void forward_rows(Strip<N, K, ChannelsLast, Index, T>& strip, const Source& source,
                             const Axis<A, Index>& y_axis, int64_t step) {
  A above[K][N], below[K][N];
  Index row = -2;  // of `above`; `below` is the next one
  Index at = 0;    // the row to which strip.source points
  for (Index y = strip.first_row; y < strip.last_row; ++y) {
    const auto tap = y_axis.tap(y);
    if (tap.lower != row) {
      if (tap.lower == row + 1) {
        for_each_value<N, K>([&](int k, int n) { above[k][n] = below[k][n]; });
      } else {
        strip.move_source((tap.lower - at) * step);
        at = tap.lower;
        source.load_row(strip.source, above);
      }
      row = tap.lower;
      if (row + 1 < y_axis.in) {
        strip.move_source(step);
        ++at;
      }
      source.load_row(strip.source, below);
    }
    A out[K][N];
    for_each_value<N, K>(
        [&](int k, int n) { out[k][n] = interpolate(above[k][n], below[k][n], tap.lower_weight, tap.upper_weight); });
    strip.store_next_row(out);
  }
}

// N > 1 needs channels_last, and 16-byte alignment and a multiple of N of channels, of source and target. Index must
// hold every position, and every offset within a row of the source. In float32 the loop over rows has 50 instructions
// per value for eight planes (K), 200 for one, and would have 80 in tiles of single columns (SASS for sm_90; no time
// was measured).
template <int N, int K, bool ChannelsLast, class Index, class T>
__global__ void __launch_bounds__(kit::threads_per_block, 4) forward_kernel(Params<T> p, Parts parts) {
  const auto y_axis = p.y.template with_index<Index>(), x_axis = p.x.template with_index<Index>();
  for (int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; index < parts.count;
       index += int64_t{gridDim.x} * blockDim.x) {
    Strip<N, K, ChannelsLast, Index, T> strip(p, parts, parts[index], y_axis.out, x_axis.out);
    forward_rows(strip, Interpolated<N, K, Index, T>(x_axis, strip.column, p.strides.w), y_axis, p.strides.h);
  }
}

// The sum along x that a row of the output's gradient contributes to a column of the input's gradient.
template <int N, class Index, class T>
struct Gathered {
  using A = kit::opmath<T>;
  static constexpr int together = columns_together;  // loads in flight together; their weights are kept

  const Axis<A, Index>& x_axis;
  Index column, step;
  Range<Index> columns;
  Index offset[together];
  A weight[together];  // 0 where a column does not count

  __device__ Gathered(const Axis<A, Index>& x_axis, Index column, int64_t step)
      : x_axis(x_axis), column(column), step(static_cast<Index>(step)), columns(x_axis.outputs_of(column)) {
#pragma unroll
    for (int j = 0; j < together; ++j) {
      const Index x = columns.first + j;
      const bool counts = x < columns.last;
      offset[j] = (counts ? x : columns.first) * this->step;
      weight[j] = counts ? x_axis.tap(x).weight(column) : A(0);
    }
  }

  __device__ void load_row(const T* const (&source)[1], A (&sum)[1][N]) const {
    const A start = sum_start<A>(columns.last - columns.first);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[0][n] = start;
    if (columns.first == columns.last) return;
    const auto add = [&](A by, const kit::Pack<T, N>& grad) {
#pragma unroll
      for (int n = 0; n < N; ++n) sum[0][n] += by * kit::widen<A>(grad, n);
    };
    kit::Pack<T, N> grad[together];
#pragma unroll
    for (int j = 0; j < together; ++j) grad[j] = kit::load<N>(source[0] + offset[j]);
#pragma unroll
    for (int j = 0; j < together; ++j) {
      if (weight[j] != A(0)) add(weight[j], grad[j]);
    }
    for (Index x = columns.first + together; x < columns.last; ++x) {
      add(x_axis.tap(x).weight(column), kit::load<N>(source[0] + x * step));
    }
  }
};

// Computes the strip's rows of the input's gradient from the rows of the output's gradient that `source` loads.
template <int N, int K, bool ChannelsLast, class Index, class T, class Source, class A>
__device__ void backward_rows(Strip<N, K, ChannelsLast, Index, T>& strip, const Source& source,
                              const Axis<A, Index>& y_axis, int64_t step) {
  const Index end = y_axis.outputs_of(strip.last_row - 1).last;
  A sum[K][N], next[K][N];
  for_each_value<N, K>([&](int k, int n) { sum[k][n] = next[k][n] = sum_start<A>(1); });
  Index row = strip.first_row - 1;  // the row of `sum`; `next` is the sum of the row after it
  Index last_read = -1;             // the last row to which a row of the source contributed so far
  Index y = y_axis.outputs_of(strip.first_row).first;
  strip.move_source(y * step);
  for (;; ++y, strip.move_source(step)) {
    const auto tap = y_axis.tap(y);
    // Stores the rows that are complete.
#pragma unroll 1
    for (const Index reached = y < end ? tap.lower : strip.last_row; row < reached; ++row) {
      if (row > last_read) for_each_value<N, K>([&](int k, int n) { sum[k][n] = sum_start<A>(0); });
      if (row >= strip.first_row) strip.store_next_row(sum);
      for_each_value<N, K>([&](int k, int n) {
        sum[k][n] = next[k][n];
        next[k][n] = sum_start<A>(1);
      });
    }
    if (y >= end) break;
    last_read = tap.upper;
    A of_row[K][N];
    source.load_row(strip.source, of_row);
    for_each_value<N, K>([&](int k, int n) {
      sum[k][n] += tap.lower_weight * of_row[k][n];
      if (tap.lower != tap.upper) next[k][n] += tap.upper_weight * of_row[k][n];
    });
  }
}

// Here the source is the output's gradient and the target is the input's. The conditions on N and Index are those of
// forward.
template <int N, bool ChannelsLast, class Index, class T>
__global__ void __launch_bounds__(kit::threads_per_block, 4) backward_kernel(Params<T> p, Parts parts) {
  const auto y_axis = p.y.template with_index<Index>(), x_axis = p.x.template with_index<Index>();
  for (int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; index < parts.count;
       index += int64_t{gridDim.x} * blockDim.x) {
    Strip<N, 1, ChannelsLast, Index, T> strip(p, parts, parts[index], y_axis.in, x_axis.in);
    backward_rows(strip, Gathered<N, Index, T>(x_axis, strip.column, p.strides.w), y_axis, p.strides.h);
  }
}

}  // namespace cppcuda::ops::upsample_bilinear2d
