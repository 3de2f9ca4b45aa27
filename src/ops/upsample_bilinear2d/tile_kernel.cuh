#pragma once

// Planes through shared memory. A block takes a tile: strips next to each other of several planes, the same rows of each.
// Its threads read a row of the source together, in packs of N. So a value is read from global memory once, and to find it
// takes no arithmetic on 64-bit addresses, of which a strip that reads global memory has more to do than with values.

#include "core/shared_memory.cuh"
#include "ops/upsample_bilinear2d/kernel.cuh"

namespace cppcuda::ops::upsample_bilinear2d {

// The row of the source that a tile needs next; what W planes have in one column lies next to each other. All threads of a
// block call load() together.
template <int N, class T>
struct TileRow {
  using A = core::opmath<T>;
  static constexpr int W = tile_width<A>;
  static constexpr int rows_ahead = 2;  // a block makes a step in less time than memory takes
  using Column = core::Pack<T, W>;

  Column* columns;  // of the thread's planes
  int window_first;
  int first, last, step;  // of the window, what the thread reads

  __device__ TileRow(const Tiles& tiles, const Range<int>& window, int group, int strip)
      : columns(core::shared_memory<Column>() + min(group, tiles.groups - 1) * tiles.pitch),
        window_first(window.first),
        first(strip * N),
        last(group < tiles.groups ? window.last - window.first : 0),
        step(tiles.strips * N) {}

  __device__ const Column* operator[](int x) const { return columns + core::padded(x - window_first, sizeof(Column)); }

  // source: at the window's first column. ahead: the offset of a row that is needed later.
  __device__ void load(const T* const (&source)[W], int64_t ahead) const {
    __syncthreads();  // all have used the row before
    for (int x = first; x < last; x += step) {
      core::Pack<T, N> values[W];
#pragma unroll
      for (int k = 0; k < W; ++k) values[k] = core::load<N>(source[k] + x);
#pragma unroll
      for (int k = 0; k < W; ++k) core::prefetch(source[k] + (x + ahead));
      Column* to = columns + core::padded(x, sizeof(Column));
#pragma unroll
      for (int n = 0; n < N; ++n) {
        Column column;
#pragma unroll
        for (int k = 0; k < W; ++k) column.value[k] = values[k].value[n];
        to[n] = column;
      }
    }
    __syncthreads();
  }
};

// As Interpolated, of W columns.
template <int N, class T>
struct TileInterpolated {
  using Row = TileRow<N, T>;
  using A = core::opmath<T>;
  static constexpr int W = Row::W, rows_ahead = Row::rows_ahead;

  Row row;
  const typename Row::Column *lower[W], *upper[W];
  A lower_weight[W], upper_weight[W];

  __device__ TileInterpolated(const Row& row, const Axis<A, int>& x, int column) : row(row) {
#pragma unroll
    for (int n = 0; n < W; ++n) {
      const auto tap = x.tap(column + n);
      lower[n] = row[tap.lower];
      upper[n] = row[tap.upper];
      lower_weight[n] = tap.lower_weight;
      upper_weight[n] = tap.upper_weight;
    }
  }

  __device__ void load_row(const T* const (&source)[W], int64_t ahead, A (&to)[W][W]) const {
    row.load(source, ahead);
#pragma unroll
    for (int n = 0; n < W; ++n) {
      const auto left = *lower[n], right = *upper[n];
#pragma unroll
      for (int k = 0; k < W; ++k) {
        to[k][n] = lower_weight[n] * core::widen<A>(left, k) + upper_weight[n] * core::widen<A>(right, k);
      }
    }
  }
};

// As Gathered, of W columns.
template <int N, class T>
struct TileGathered {
  using Row = TileRow<N, T>;
  using A = core::opmath<T>;
  static constexpr int W = Row::W, rows_ahead = Row::rows_ahead, together = columns_together;

  Row row;
  const typename Row::Column* at[W][together];
  A weight[W][together];

  // zero: a column of zeros, which stands for one that does not count.
  __device__ TileGathered(const Row& row, const Axis<A, int>& x_axis, int column, const typename Row::Column* zero)
      : row(row) {
#pragma unroll
    for (int n = 0; n < W; ++n) {
      const int first = x_axis.outputs_of(column + n).first;
#pragma unroll
      for (int j = 0; j < together; ++j) {
        const auto tap = x_axis.tap(first + j);
        const bool counts = first + j < x_axis.out && tap.lower <= column + n;
        at[n][j] = counts ? row[first + j] : zero;
        weight[n][j] = counts ? tap.weight(column + n) : A(0);
      }
    }
  }

  __device__ void load_row(const T* const (&source)[W], int64_t ahead, A (&sum)[W][W]) const {
    row.load(source, ahead);
    for_each_value<W, W>([&](int k, int n) { sum[k][n] = 0; });
#pragma unroll
    for (int n = 0; n < W; ++n) {
#pragma unroll
      for (int j = 0; j < together; ++j) {
        const auto grad = *at[n][j];
#pragma unroll
        for (int k = 0; k < W; ++k) sum[k][n] += weight[n][j] * core::widen<A>(grad, k);
      }
    }
  }
};

// Calls f(strip, row) for each tile of the block. window(columns): what columns of the target need of the source's.
template <int N, class T, class Window, class F>
__device__ void for_each_tile(const Params<T>& p, const Tiles& tiles, int height, int width, Window window, F f) {
  const int group = threadIdx.x / tiles.strips, lane = threadIdx.x % tiles.strips;
  for (int64_t index = blockIdx.x; index < tiles.parts.count; index += gridDim.x) {
    const auto tile = tiles.parts[index];
    const auto [part, exists] = tiles.place(tile, group, lane);
    constexpr int W = TileRow<N, T>::W;
    Strip<W, W, false, int, T> strip(p, tiles.parts, part, height, width);
    if (!exists) strip.planes = 0;
    const TileRow<N, T> row(tiles, in_packs(window(tiles.columns(tile, W)), N), group, lane);
    strip.move_source(row.window_first);
    f(strip, row);
  }
}

// Both need columns of the source next to each other, in rows that are aligned to packs and a multiple of them, and rows of
// the target of a multiple of W; backward needs is_dense().
template <int N, class T>
__global__ void __launch_bounds__(tile_threads, 4) forward_tile_kernel(Params<T> p, Tiles tiles) {
  const auto y_axis = p.y.template with_index<int>(), x_axis = p.x.template with_index<int>();
  for_each_tile<N>(
      p, tiles, y_axis.out, x_axis.out, [&](const Range<int>& columns) { return inputs_of(x_axis, columns); },
      [&](auto& strip, const auto& row) {
        forward_rows(strip, TileInterpolated<N, T>(row, x_axis, strip.column), y_axis, p.strides.h);
      });
}

template <int N, class T>
__global__ void __launch_bounds__(tile_threads, 3) backward_tile_kernel(Params<T> p, Tiles tiles) {
  const auto y_axis = p.y.template with_index<int>(), x_axis = p.x.template with_index<int>();
  auto* zero = core::shared_memory<typename TileRow<N, T>::Column>() + tiles.groups * tiles.pitch;
  if (threadIdx.x == 0) *zero = {};
  for_each_tile<N>(
      p, tiles, y_axis.in, x_axis.in, [&](const Range<int>& columns) { return outputs_of(x_axis, columns); },
      [&](auto& strip, const auto& row) {
        backward_rows(strip, TileGathered<N, T>(row, x_axis, strip.column, zero), y_axis, p.strides.h);
      });
}

}  // namespace cppcuda::ops::upsample_bilinear2d
