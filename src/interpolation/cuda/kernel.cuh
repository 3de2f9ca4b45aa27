#pragma once

// Neighbouring threads share a point and step over its features, N at a time. Each of them computes the point's cell,
// and loads up to eight corners before it uses the first.

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/math/divide.h"
#include "cppcuda/kit/math/opmath.h"
#include "interpolation/cells.h"
#include "interpolation/params.h"

namespace cppcuda::interpolation {

// Points in the dtype of the table or, beside 16 bits, in float32: the other one is null. A branch per point costs less
// than twice as many kernels.
template <class T>
struct Points {
  RowsOf<T> narrow;
  RowsOf<float> wide;

  Points(const RowsOf<T>& points) : narrow(points) {}
  template <class P>
  Points(const RowsOf<P>& points) : wide(points) {}

  CPPCUDA_HOST_DEVICE bool given() const { return narrow.data || wide.data; }

  template <class A, int Axes>
  __device__ void read(int64_t batch, int64_t n, A (&to)[Axes][1]) const {
    if (sizeof(T) == 2 && wide.data) {
      const float* from = wide.at(batch, n);
#pragma unroll
      for (int d = 0; d < Axes; ++d) to[d][0] = static_cast<A>(from[d * wide.inner]);
    } else {
      const T* from = narrow.at(batch, n);
#pragma unroll
      for (int d = 0; d < Axes; ++d) to[d][0] = static_cast<A>(from[d * narrow.inner]);
    }
  }
};

// The work of a launch: the points of all batches or, if groups of levels are work of their own, groups times points,
// in the order of the groups. All blocks then read the tables of the same group, which fit into the L2 cache.
struct Work {
  int64_t count;
  kit::Divisor group, batch;  // by the numbers of points of a group and of a batch
  int lane_bits;
};

struct Place {
  int group;
  int64_t batch, n;
  int64_t number;  // of the point among those of all batches
};

__device__ inline Place place_of(const Work& work, int64_t index) {
  Place place{0, 0, index, index};
  if (work.count != work.group.value()) {
    const auto [group, number] = work.group.divide(index);
    place = {static_cast<int>(group), 0, number, number};
  }
  if (work.group.value() != work.batch.value()) {
    const auto [batch, n] = work.batch.divide(place.number);
    place.batch = batch;
    place.n = n;
  }
  return place;
}

// Levels first .. end - 1.
struct Levels {
  int first, end;

  // The levels of a group that has `size` of them, or the rest.
  template <class Lookup>
  __device__ static Levels of(const Lookup& lookup, const Place& place, int size) {
    if constexpr (!Lookup::has_levels) return {0, 1};
    return {place.group * size, min(place.group * size + size, lookup.levels())};
  }
};

// The values of a missing corner.
static __device__ const uint4 zeros = {};

// The threads that share a point.
struct Lanes {
  int count, index;
  unsigned mask;

  __device__ explicit Lanes(int lane_bits)
      : count(1 << lane_bits),
        index(static_cast<int>(threadIdx.x) & (count - 1)),
        mask((count == 32 ? ~0u : (1u << count) - 1) << (threadIdx.x % 32 - index)) {}

  // Calls f(index) for this group's part of 0 .. work - 1.
  template <class F>
  __device__ void for_each(int64_t work, F f) const {
    const int64_t groups = blockDim.x / count;
    for (int64_t i = blockIdx.x * groups + threadIdx.x / count; i < work; i += gridDim.x * groups) f(i);
  }

  // The sum over the lanes, which all of them get, in a fixed order.
  template <class A>
  __device__ A sum(A value) const {
    for (int offset = count / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(mask, value, offset);
    return value;
  }
};

// A point's cell at a level.
template <class A, class Lookup>
struct Located {
  static constexpr int axes = Lookup::axes, corners = 1 << axes;

  Cells<A, axes, 1> cells;

  template <class T>
  __device__ Located(const Lookup& lookup, const Points<T>& points, const Place& place, int level,
                     const Order& order = {}) {
    A point[axes][1];
    points.read(place.batch, place.n, point);
    locate(lookup, place.batch, place.n, 1, level, point, order, cells);
  }
  __device__ Located(const Lookup& lookup, const A (&point)[axes][1], const Place& place, int level,
                     const Order& order = {}) {
    locate(lookup, place.batch, place.n, 1, level, point, order, cells);
  }

  __device__ A weight(int c) const { return cells.weight(c, 0); }
  __device__ A slope(int c, int axis) const { return cells.slope_of(c, axis, 0); }
  __device__ bool is_missing(int c) const { return cells.row[c][0] < 0; }

  // The weights of the corners or, with a direction, their derivatives.
  template <class T>
  __device__ void weigh(const Points<T>& directions, const Place& place, A (&weight)[corners]) const {
    if (directions.given()) {
      A direction[axes][1];
      directions.read(place.batch, place.n, direction);
#pragma unroll
      for (int c = 0; c < corners; ++c) {
        weight[c] = cells.weight_along(c, direction, 0);
      }
    } else {
#pragma unroll
      for (int c = 0; c < corners; ++c) weight[c] = cells.weight(c, 0);
    }
  }

  // Calls f(c, is_missing, x) for all corners with the values f .. f + N - 1 of their rows, zeros for missing ones.
  // `from` is the first row of the point's level. The loads of `together` corners, all or half of them, are in flight
  // at once.
  template <int N, int together = corners < 8 ? corners : 8, class T, class F>
  __device__ void for_each_corner(const T* from, const RowsOf<T>& table, int64_t f, F call) const {
    static_assert(together == corners || 2 * together == corners);
    from = kit::base_address(from + f * table.inner);
#pragma unroll 1
    for (int first = 0; first < corners; first += together) {
      kit::Pack<T, N> x[together];
      bool is_missing[together];
#pragma unroll
      for (int k = 0; k < together; ++k) {
        // Not row[first + k], because a changing index would put the array into local memory.
        const int64_t row = first == 0 ? cells.row[k][0] : cells.row[corners - together + k][0];
        is_missing[k] = row < 0;
        // A load under a condition would wait for the loads before it.
        const T* values = is_missing[k] ? reinterpret_cast<const T*>(&zeros) : from + row * table.row;
        x[k] = kit::load<N>(values);
      }
#pragma unroll
      for (int k = 0; k < together; ++k) call(first | k, is_missing[k], x[k]);
    }
  }
};

// The product of a row with grad, 0 if the row is missing, whatever is in grad.
template <class A, class T, int N>
__device__ A product(const kit::Pack<T, N>& grad, const kit::Pack<T, N>& x, bool is_missing) {
  A sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += (is_missing ? A(0) : kit::widen<A>(grad, i)) * kit::widen<A>(x, i);
  return sum;
}

// sum += weight x
template <class A, class T, int N>
__device__ void add_row(A (&sum)[N], A weight, const kit::Pack<T, N>& x) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] += weight * kit::widen<A>(x, i);
}

template <int N, class T, class A>
__device__ void store_rounded(T* to, const A* from) {
  kit::Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.value[i] = static_cast<T>(from[i]);
  kit::store(to, pack);
}

// Stores what the lanes of a point have summed, a value per axis, or adds it to what an earlier launch has stored.
template <int axes, class A>
__device__ void store_sums(A* to, const Lanes& lanes, A (&sum)[axes], bool adds) {
#pragma unroll
  for (int d = 0; d < axes; ++d) sum[d] = lanes.sum(sum[d]);
  if (lanes.index != 0) return;
  constexpr int width = axes * sizeof(A) % 16 == 0 ? kit::pack_size<A> : 1;
#pragma unroll
  for (int d = 0; d < axes; d += width) {
    kit::Pack<A, width> stored{};
    if (adds) stored = kit::load<width>(to + d);
#pragma unroll
    for (int i = 0; i < width; ++i) stored.value[i] += sum[d + i];
    kit::store(to + d, stored);
  }
}

// ---- gather

// The blocks per multiprocessor, for __launch_bounds__. More would leave too few registers: the compiler then issues
// fewer loads at once, or spills (tools/run kernel_report). From compute capability 12.0 on it needs more of them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int fewer_blocks = 1;
#else
constexpr int fewer_blocks = 0;
#endif
template <class T>
constexpr int forward_blocks(int axes, int width) {
  return sizeof(T) == 8 || axes == 4 || width == 8 ? 4 : 5;
}
template <class T>
constexpr int slopes_blocks() {
  return sizeof(T) == 4 ? 4 : 3;
}
template <class T>
constexpr int grad_points_blocks(int width) {
  return (sizeof(T) == 8 || width == 8 ? 3 : width * sizeof(T) == 16 ? 4 : 5) - fewer_blocks;
}
template <class T>
constexpr int double_backward_blocks(int axes) {
  return (sizeof(T) == 8 ? 2 : axes == 4 ? 3 : 4) - fewer_blocks;
}

template <int N, class T, class Lookup>
__global__ void __launch_bounds__(kit::threads_per_block, forward_blocks<T>(Lookup::axes, N))
    forward_kernel(GatherParams<T, T, Lookup> p, Points<T> points, Work work) {
  using A = kit::opmath<T>;
  const Lanes lanes(work.lane_bits);
  lanes.for_each(work.count, [&](int64_t index) {
    const Place place = place_of(work, index);
    const int level = place.group;
    const Located<A, Lookup> at(p.lookup, points, place, level);
    const T* table = p.table.at(place.batch, p.lookup.first_row(level));
    T* out = p.out + place.number * p.columns() + level * p.features;
    for (int64_t f = int64_t{lanes.index} * N; f < p.features; f += int64_t{lanes.count} * N) {
      A sum[N] = {};
      at.template for_each_corner<N>(table, p.table, f, [&](int c, bool is_missing, const auto& x) {
        add_row(sum, is_missing ? A(0) : at.weight(c), x);
      });
      store_rounded<N>(out + f, sum);
    }
  });
}

// The number of levels whose results a thread of forward stores together, in 16 bytes or less. More than four would be
// long code. On an H100 (docs/benchmarks) a thread that took twice as many levels, in two stores to one sector, was
// 0.96 times as fast in float32 and 0.93 times in float16, and with four times as many 0.77 and 0.83 times.
template <class T>
constexpr int levels_of_store(int features) {
  return features >= kit::pack_size<T> ? 1 : features * 4 >= kit::pack_size<T> ? kit::pack_size<T> / features : 4;
}

// forward_kernel for tables of levels whose rows are contiguous. A thread takes the levels of a store. If `packs` is
// set, this is one aligned access; then the number of levels must be a multiple of them.
template <int F, class T, class Lookup>
__global__ void __launch_bounds__(kit::threads_per_block, forward_blocks<T>(Lookup::axes, F))
    levels_kernel(GatherParams<T, T, Lookup> p, Points<T> points, Work work, bool packs) {
  using A = kit::opmath<T>;
  constexpr int axes = Lookup::axes, together = levels_of_store<T>(F), count = together * F;
  constexpr int width = F < kit::pack_size<T> ? F : kit::pack_size<T>;
  constexpr int pack = count < kit::pack_size<T> ? count : kit::pack_size<T>;
  const RowsOf<T> rows{.row = F};
  Lanes(0).for_each(work.count, [&](int64_t index) {
    const Place place = place_of(work, index);
    const Levels levels = Levels::of(p.lookup, place, together);
    A point[axes][1], sum[count] = {};
    points.read(place.batch, place.n, point);
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const int level = levels.first + k;
      if (level >= levels.end) continue;
      const Located<A, Lookup> at(p.lookup, point, place, level);
      const T* table = p.table.at(place.batch, p.lookup.first_row(level));
#pragma unroll
      for (int f = 0; f < F; f += width) {
        at.template for_each_corner<width>(table, rows, f, [&](int c, bool, const auto& x) {
          const A weight = at.weight(c);
#pragma unroll
          for (int i = 0; i < width; ++i) sum[k * F + f + i] += weight * kit::widen<A>(x, i);
        });
      }
    }
    T* out = p.out + (place.number * p.lookup.levels() + levels.first) * F;
    if (packs) {
#pragma unroll
      for (int i = 0; i < count; i += pack) store_rounded<pack>(out + i, sum + i);
    } else {
#pragma unroll
      for (int i = 0; i < count; i += width) {
        if (levels.first + i / F < levels.end) store_rounded<width>(out + i, sum + i);
      }
    }
  });
}

// forward_kernel with the derivatives by the coordinates, for lookups without levels.
template <int N, class T, class Lookup>
__global__ void __launch_bounds__(kit::threads_per_block, slopes_blocks<T>())
    slopes_kernel(GatherParams<T, T, Lookup> p, Points<T> points, Work work) {
  using A = kit::opmath<T>;
  constexpr int axes = Lookup::axes;
  const Lanes lanes(work.lane_bits);
  lanes.for_each(work.count, [&](int64_t index) {
    const Place place = place_of(work, index);
    const Located<A, Lookup> at(p.lookup, points, place, 0);
    const T* table = p.table.at(place.batch, 0);
    for (int64_t f = int64_t{lanes.index} * N; f < p.features; f += int64_t{lanes.count} * N) {
      A sum[N] = {}, slopes[axes][N] = {};
      at.template for_each_corner<N>(table, p.table, f, [&](int c, bool is_missing, const auto& x) {
        add_row(sum, is_missing ? A(0) : at.weight(c), x);
#pragma unroll
        for (int d = 0; d < axes; ++d) add_row(slopes[d], is_missing ? A(0) : at.slope(c, d), x);
      });
      const int64_t to = place.number * p.features + f;
      store_rounded<N>(p.out + to, sum);
      // The derivatives of a feature are contiguous.
#pragma unroll
      for (int k = 0; k < axes; ++k) {
        A values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = slopes[(k * N + i) % axes][(k * N + i) / axes];
        store_rounded<N>(p.out_slopes + to * axes + k * N, values);
      }
    }
  });
}

// The gradient of the points is a sum over levels and features, in a fixed order. The levels before levels.first were
// those of an earlier launch.
template <int N, class T, class Lookup>
__global__ void __launch_bounds__(kit::threads_per_block, grad_points_blocks<T>(N))
    grad_points_kernel(GatherParams<T, T, Lookup> p, Points<T> points, Work work, Levels levels) {
  using A = kit::opmath<T>;
  constexpr int axes = Lookup::axes;
  if constexpr (!Lookup::has_levels) levels = {0, 1};
  const Lanes lanes(work.lane_bits);
  lanes.for_each(work.count, [&](int64_t index) {
    const Place place = place_of(work, index);
    A sum[axes] = {};
    for (int level = levels.first; level < levels.end; ++level) {
      const Located<A, Lookup> at(p.lookup, points, place, level);
      const T* table = p.table.at(place.batch, p.lookup.first_row(level));
      const T* grad = p.grad.at(place.batch, place.n) + level * p.features * p.grad.inner;
      for (int64_t f = int64_t{lanes.index} * N; f < p.features; f += int64_t{lanes.count} * N) {
        const auto g = kit::load_strided<N>(grad, f, p.grad.inner);
        at.template for_each_corner<N>(table, p.table, f, [&](int c, bool is_missing, const auto& x) {
          const A dot = product<A>(g, x, is_missing);
#pragma unroll
          for (int d = 0; d < axes; ++d) sum[d] += at.slope(c, d) * dot;
        });
      }
    }
    store_sums(p.grad_points + place.number * axes, lanes, sum, levels.first > 0);
  });
}

// All of GatherParams but out_slopes, with a direction.
template <int N, class T, class Lookup>
__global__ void __launch_bounds__(kit::threads_per_block, double_backward_blocks<T>(Lookup::axes))
    double_backward_kernel(GatherParams<T, T, Lookup> p, Points<T> points, Points<T> directions, Work work,
                           Levels levels) {
  using A = kit::opmath<T>;
  constexpr int axes = Lookup::axes, half = 1 << (axes - 1);
  constexpr bool curved = Lookup::is_curved;
  if constexpr (!Lookup::has_levels) levels = {0, 1};
  const Lanes lanes(work.lane_bits);
  lanes.for_each(work.count, [&](int64_t index) {
    const Place place = place_of(work, index);
    A direction[axes][1], sum_points[axes] = {};
    directions.read(place.batch, place.n, direction);
    for (int level = levels.first; level < levels.end; ++level) {
      const Located<A, Lookup> at(p.lookup, points, place, level, p.order);
      const int64_t first_row = p.lookup.first_row(level), column = level * p.features;
      const T* grad = p.grad.data ? p.grad.at(place.batch, place.n) + column * p.grad.inner : nullptr;
      for (int64_t f = int64_t{lanes.index} * N; f < p.features; f += int64_t{lanes.count} * N) {
        kit::Pack<T, N> g{};
        if (grad) g = kit::load_strided<N>(grad, f, p.grad.inner);
        A sum[N] = {};
        // Adds the rows of a table times `weight`, and their products with grad times `slope`. With the loads of all
        // corners in flight, and the weights of all corners in registers, few threads would fit on a multiprocessor.
        const auto add = [&](const RowsOf<T>& table, auto weight, auto slope) {
          const T* from = table.at(place.batch, first_row);
          at.template for_each_corner<N, half>(from, table, f, [&](int c, bool is_missing, const auto& x) {
            add_row(sum, is_missing ? A(0) : weight(c), x);
            const A dot = product<A>(g, x, is_missing);
#pragma unroll
            for (int d = 0; d < axes; ++d) sum_points[d] += slope(c, d) * dot;
          });
        };
        add(
            p.table, [&](int c) { return at.cells.weight_along(c, direction, 0); },
            [&](int c, int d) { return at.cells.template slope_along<curved>(c, d, direction, 0); });
        if (p.second.data) {
          add(p.second, [&](int c) { return at.weight(c); }, [&](int c, int d) { return at.slope(c, d); });
        }
        if (p.out) store_rounded<N>(p.out + place.number * p.columns() + column + f, sum);
      }
    }
    if (p.grad_points) store_sums(p.grad_points + place.number * axes, lanes, sum_points, levels.first > 0);
  });
}

// ---- scatter

// Neighbouring threads add neighbouring features, N at a time, so that a warp touches few sectors. A thread takes a
// group of `size` levels, so that what it reads of grad fills a sector. The table starts as zeros. N = 2 is for rows of
// two.
template <int N, class T, class Lookup>
__global__ void __launch_bounds__(kit::threads_per_block)
    scatter_kernel(ScatterParams<T, T, Lookup> p, Points<T> points, Points<T> directions, Work work, int size) {
  using A = kit::opmath<T>;
  constexpr int axes = Lookup::axes, corners = 1 << axes;
  const Lanes lanes(work.lane_bits);
  const int64_t rows = p.lookup.end_row(p.lookup.levels() - 1), features = N == 2 ? 2 : p.features;
  lanes.for_each(work.count, [&](int64_t index) {
    const Place place = place_of(work, index);
    const Levels levels = Levels::of(p.lookup, place, size);
    A point[axes][1];
    points.read(place.batch, place.n, point);
#pragma unroll 1
    for (int level = levels.first; level < levels.end; ++level) {
      const Located<A, Lookup> at(p.lookup, point, place, level, p.order);
      A weight[corners];
      at.weigh(directions, place, weight);
      A* table = kit::base_address(p.table + (place.batch * rows + p.lookup.first_row(level)) * features);
      const T* grad = p.grad.at(place.batch, place.n) + level * features * p.grad.inner;
      for (int64_t f = int64_t{lanes.index} * N; f < features; f += int64_t{lanes.count} * N) {
        const auto g = kit::load_strided<N>(grad, f, p.grad.inner);
#pragma unroll
        for (int c = 0; c < corners; ++c) {
          if (at.is_missing(c)) continue;
          kit::Pack<A, N> term;
#pragma unroll
          for (int i = 0; i < N; ++i) term.value[i] = weight[c] * kit::widen<A>(g, i);
          kit::add_atomically(table + at.cells.row[c][0] * features + f, term);
        }
      }
    }
  });
}

// ---- scatter in a fixed order (params.h)

template <class P, class Lookup>
__global__ void __launch_bounds__(kit::threads_per_block)
    terms_kernel(TermParams<P, Lookup> p, Points<P> points, Points<P> directions, Work work) {
  using A = kit::opmath<P>;
  constexpr int corners = 1 << Lookup::axes;
  const int64_t rows = p.lookup.end_row(p.lookup.levels() - 1);
  Lanes(0).for_each(p.count, [&](int64_t i) {
    const Place place = place_of(work, p.first + i);
    const int level = place.group;
    const Located<A, Lookup> at(p.lookup, points, place, level, p.order);
    A weight[corners];
    at.weigh(directions, place, weight);
    const int64_t first_row = place.batch * rows + p.lookup.first_row(level);
#pragma unroll
    for (int c = 0; c < corners; ++c) {
      const int64_t term = c * p.count + i;
      p.row.set(term, at.is_missing(c) ? p.batches * rows : first_row + at.cells.row[c][0]);
      p.term[term] = static_cast<int32_t>(term);
      p.weight[term] = weight[c];
    }
  });
}

// Threads that share a run add up its terms, one after the other. They add the sum of a row to the table if its first
// term is in this run, else they write it for join_kernel.
template <class T>
__global__ void __launch_bounds__(kit::threads_per_block) sum_kernel(SumParams<T> p, kit::Divisor count, Work work) {
  using A = kit::opmath<T>;
  constexpr int together = 4;
  const Lanes lanes(work.lane_bits);
  lanes.for_each(p.runs(), [&](int64_t run) {
    const int64_t begin = run * p.run, end = min(begin + p.run, p.terms);
    for (int64_t f = lanes.index; f < p.features; f += lanes.count) {
      int64_t row = p.row.at(begin);
      bool began_before = begin > 0 && p.row.at(begin - 1) == row;
      A sum = 0;
      const auto finish = [&] {
        if (began_before) {
          p.partial[run * p.features + f] = sum;
        } else {
          p.table[row * p.features + f] += sum;
        }
      };
      for (int64_t first = begin; first < end && row != p.rows; first += together) {
        // Loaded before the first store, which might overlap with them for all that the compiler knows.
        int64_t rows[together];
        A values[together];
#pragma unroll
        for (int k = 0; k < together; ++k) {
          rows[k] = first + k < end ? p.row.at(first + k) : p.rows;
          values[k] = 0;
          if (rows[k] == p.rows) continue;
          const int32_t term = p.term[first + k];
          const Place place = place_of(work, p.first + count.divide(term).remainder);
          const T* grad = p.grad.at(place.batch, place.n);
          values[k] = p.weight[term] * static_cast<A>(grad[(place.group * p.features + f) * p.grad.inner]);
        }
#pragma unroll
        for (int k = 0; k < together; ++k) {
          if (rows[k] != row) {
            if (row != p.rows) finish();
            row = rows[k];
            began_before = false;
            sum = 0;
          }
          sum += values[k];
        }
      }
      if (row != p.rows) finish();
    }
  });
}

// Adds to a row that has its first term in a run and further ones in the runs that follow.
template <class T>
__global__ void __launch_bounds__(kit::threads_per_block) join_kernel(SumParams<T> p, Work work) {
  using A = kit::opmath<T>;
  const Lanes lanes(work.lane_bits);
  lanes.for_each(p.runs() - 1, [&](int64_t run) {
    const int64_t begin = run * p.run, row = p.row.at(begin + p.run - 1);
    if (row == p.rows || p.row.at(begin + p.run) != row || (begin > 0 && p.row.at(begin - 1) == row)) return;
    int64_t last = run + 1, end = p.runs();  // the last run that begins with this row is in last .. end - 1
    while (end - last > 1) {
      const int64_t middle = last + (end - last) / 2;
      (p.row.at(middle * p.run) == row ? last : end) = middle;
    }
    for (int64_t f = lanes.index; f < p.features; f += lanes.count) {
      A sum = 0;
#pragma unroll 8
      for (int64_t r = run + 1; r <= last; ++r) sum += p.partial[r * p.features + f];
      p.table[row * p.features + f] += sum;
    }
  });
}

}  // namespace cppcuda::interpolation
