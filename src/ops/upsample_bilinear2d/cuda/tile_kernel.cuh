#pragma once

// Kernels that stage planes in shared memory. A block computes a tile: adjacent strips of several planes, and the same
// rows of each. Its threads load a row of the source together, in packs of N, so that each value is read from global
// memory once. Strips that read global memory spend more instructions on 64-bit addresses than on values; tiles do not
// (SASS for sm_90; no time was measured).

#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "ops/upsample_bilinear2d/cuda/kernel.cuh"

namespace cppcuda::ops::upsample_bilinear2d {

// The row of the source that a tile needs next. The values of K planes in one column are contiguous. All threads of a
// block call load() together. If there are more packs than threads, a thread loads in turns, of which Turns are in
// flight together.
template <int N, int K, int Turns, class T>
struct TileRow {
  using Column = kit::Pack<T, K>;

  Column* columns;  // of the thread's planes
  int window_first, window_size;
  int strip, strips;
  Banks banks;

  __device__ TileRow(const Tiles& tiles, const Range<int>& window, int group, int strip)
      : columns(kit::shared_memory<Column>() + min(group, tiles.groups - 1) * tiles.pitch),
        window_first(window.first),
        window_size(group < tiles.groups ? window.last - window.first : 0),
        strip(strip),
        strips(tiles.strips),
        banks(tiles.banks) {}

  __device__ const Column* operator[](int x) const { return columns + banks(x - window_first); }

  // source: at the window's first column.
  __device__ void load(const T* const (&source)[K]) const {
    __syncthreads();  // all threads are done with the previous row
    kit::forget(columns, kit::round_up(window_size, int{128 / sizeof(Column)}));  // Banks permutes whole blocks
    const int step = strips * N;
    for (int first = strip * N; first < window_size; first += Turns * step) {
      kit::Pack<T, N> values[Turns][K];
#pragma unroll
      for (int t = 0; t < Turns; ++t) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
          if (first + t * step < window_size) values[t][k] = kit::load<N>(source[k] + (first + t * step));
        }
      }
#pragma unroll
      for (int t = 0; t < Turns; ++t) {
        if (first + t * step >= window_size) continue;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          Column column;
#pragma unroll
          for (int k = 0; k < K; ++k) column.value[k] = values[t][k].value[n];
          columns[banks(first + t * step + n)] = column;
        }
      }
    }
    __syncthreads();
  }
};

// Like Interpolated, for C columns.
template <int N, int C, int K, class T>
struct TileInterpolated {
  static constexpr int turns = 1;  // with two turns the kernel spills
  using Row = TileRow<N, K, turns, T>;
  using A = kit::opmath<T>;

  Row row;
  const typename Row::Column *lower[C], *upper[C];
  A lower_weight[C], upper_weight[C];

  __device__ TileInterpolated(const Row& row, const Axis<A, int>& x, int column) : row(row) {
#pragma unroll
    for (int n = 0; n < C; ++n) {
      const auto tap = x.tap(column + n);
      lower[n] = row[tap.lower];
      upper[n] = row[tap.upper];
      lower_weight[n] = tap.lower_weight;
      upper_weight[n] = tap.upper_weight;
    }
  }

  __device__ void load_row(const T* const (&source)[K], A (&to)[K][C]) const {
    row.load(source);
#pragma unroll
    for (int n = 0; n < C; ++n) {
      const auto left = *lower[n], right = *upper[n];
#pragma unroll
      for (int k = 0; k < K; ++k) {
        to[k][n] = interpolate(kit::widen<A>(left, k), kit::widen<A>(right, k), lower_weight[n], upper_weight[n]);
      }
    }
  }
};

// Like Gathered, for C columns.
template <int N, int C, int K, class T>
struct TileGathered {
  static constexpr int turns = 2;  // the source of a doubled image is twice as wide as the tile
  using Row = TileRow<N, K, turns, T>;
  using A = kit::opmath<T>;
  static constexpr int max_together = C > 1 ? columns_together : 2 * columns_together;

  Row row;
  const Axis<A, int>& x_axis;
  int column, together;
  Range<int> rest[C];  // the columns beyond the first `together`
  const typename Row::Column* at[C][max_together];
  A weight[C][max_together];

  // zero: a column of -0, the placeholder for columns that are not read. Its weight is 0, so it adds -0.
  __device__ TileGathered(const Row& row, const Axis<A, int>& x_axis, int column, int together,
                          const typename Row::Column* zero)
      : row(row), x_axis(x_axis), column(column), together(together) {
    auto outputs = x_axis.outputs_of(column);
#pragma unroll
    for (int n = 0; n < C; ++n) {
      if (n > 0) outputs = x_axis.outputs_of(column + n, outputs);
      rest[n] = {outputs.first + together, outputs.last};
#pragma unroll
      for (int j = 0; j < max_together; ++j) {
        const int x = outputs.first + j;
        const bool counts = x < outputs.last;
        at[n][j] = counts ? row[x] : zero;
        weight[n][j] = counts ? x_axis.tap(x).weight(column + n) : A(0);
      }
    }
  }

  __device__ void load_row(const T* const (&source)[K], A (&sum)[K][C]) const {
    row.load(source);
    // The first weight of a column that is read is not 0.
    for_each_value<C, K>([&](int k, int n) { sum[k][n] = sum_start<A>(weight[n][0] != A(0)); });
#pragma unroll
    for (int n = 0; n < C; ++n) {
      const auto add = [&](A by, const typename Row::Column grad) {
#pragma unroll
        for (int k = 0; k < K; ++k) sum[k][n] += by * kit::widen<A>(grad, k);
      };
#pragma unroll
      for (int begin = 0; begin < max_together; begin += columns_together) {
        if (begin >= together) break;
#pragma unroll
        for (int j = begin; j < begin + columns_together; ++j) add(weight[n][j], *at[n][j]);
      }
      if constexpr (C == 1) {
        for (int x = rest[n].first; x < rest[n].last; ++x) add(x_axis.tap(x).weight(column + n), *row[x]);
      }
    }
  }
};

// Calls f(strip, row) for each tile of the block. window(columns): the source columns that target columns read.
template <class Row, int N, int C, int K, class T, class Window, class F>
__device__ void for_each_tile(const Params<T>& p, const Tiles& tiles, int height, int width, Window window, F f) {
  const int group = threadIdx.x / tiles.strips, lane = threadIdx.x % tiles.strips;
  for (int64_t index = blockIdx.x; index < tiles.parts.count; index += gridDim.x) {
    const auto tile = tiles.parts[index];
    const auto [part, exists] = tiles.thread_part(tile, group, lane);
    Strip<C, K, false, int, T> strip(p, tiles.parts, part, height, width);
    if (!exists) strip.planes = 0;
    const Row row(tiles, in_packs(window(tiles.columns(tile)), N), group, lane);
    strip.move_source(row.window_first);
    f(strip, row);
  }
}

// Both kernels need adjacent source columns, source rows in packs of N, and target rows in packs of C.
template <int N, int C, class T>
__global__ void __launch_bounds__(kit::threads_per_block, 4) forward_tile_kernel(Params<T> p, Tiles tiles) {
  constexpr int K = tile_planes<kit::opmath<T>>(C, sizeof(T));
  const auto y_axis = p.y.template with_index<int>(), x_axis = p.x.template with_index<int>();
  using Source = TileInterpolated<N, C, K, T>;
  for_each_tile<typename Source::Row, N, C, K>(
      p, tiles, y_axis.out, x_axis.out, [&](const Range<int>& columns) { return inputs_of(x_axis, columns); },
      [&](auto& strip, const auto& row) {
        const Source source(row, x_axis, strip.column);
        forward_rows(strip, source, y_axis, p.strides.h);
      });
}

template <int N, int C, class T>
__global__ void __launch_bounds__(kit::threads_per_block, C > 1 ? 3 : 4)
    backward_tile_kernel(Params<T> p, Tiles tiles) {
  constexpr int K = tile_planes<kit::opmath<T>>(C, sizeof(T));
  const auto y_axis = p.y.template with_index<int>(), x_axis = p.x.template with_index<int>();
  auto* zero = kit::shared_memory<kit::Pack<T, K>>() + tiles.groups * tiles.pitch;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int k = 0; k < K; ++k) zero->value[k] = static_cast<T>(-0.0F);
  }
  using Source = TileGathered<N, C, K, T>;
  for_each_tile<typename Source::Row, N, C, K>(
      p, tiles, y_axis.in, x_axis.in, [&](const Range<int>& columns) { return outputs_of(x_axis, columns); },
      [&](auto& strip, const auto& row) {
        const Source source(row, x_axis, strip.column, tiles.together, zero);
        backward_rows(strip, source, y_axis, p.strides.h);
      });
}

}  // namespace cppcuda::ops::upsample_bilinear2d
