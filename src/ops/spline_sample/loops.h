#pragma once

// The kernels: a step of a gather is a point; of a scatter, it is a point on CUDA and a part of the coefficients on the
// CPU. An image [H, W] is a volume with D = 1, whose first axis has no coordinate.

#include "cppcuda/kit/loop.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/unroll.h"
#include "interpolation/params.h"
#include "interpolation/splines.h"

namespace cppcuda::ops::spline_sample {

using interpolation::Border;
using interpolation::for_taps;
using interpolation::pick;
using interpolation::Taps;

// What all kernels have in common: [B, N, 2] or [B, N, 3] points in [D, H, W] coefficients.
template <class P>
struct Grid {
  kit::View<const P, 3> points, direction;  // direction may be missing
  int64_t size[3];
  int first_axis;  // 1 for an image
  int order;
  Border border;
  interpolation::Order derivative;

  // Sets the weights of an axis, and `count` - 1 derivatives.
  template <class A>
  CPPCUDA_HOST_DEVICE void set(int axis, int64_t b, int64_t n, int count, Taps<A>& taps) const {
    if (axis < first_axis) return taps.set_missing();
    const int k = axis - first_axis;
    taps.set(static_cast<A>(points(b, n, k)), size[axis], order, border, derivative.by(k), count);
  }
  template <class A>
  CPPCUDA_HOST_DEVICE A along(int axis, int64_t b, int64_t n) const {
    return axis < first_axis ? A(0) : static_cast<A>(direction(b, n, axis - first_axis));
  }
};

// The derivatives of a sum over the taps up to the order K, value[z][y][x] for so many by each axis, of C features.
template <class A, int K, int C>
struct Derivatives {
  A value[K + 1][K + 1][K + 1][C] = {};

  template <class T>
  CPPCUDA_HOST_DEVICE void sum(const kit::View<const T, 5>& t, int64_t b, int64_t f, const Taps<A> (&axis)[3]) {
    const T* const first = t.data + b * t.strides[0] + f * t.strides[4];
    for (int z = axis[0].begin; z < axis[0].end; ++z) {
      A plane[K + 1][K + 1][C] = {};
      for (int y = axis[1].begin; y < axis[1].end; ++y) {
        const T* const row = first + pick(axis[0].place, z) * t.strides[1] + pick(axis[1].place, y) * t.strides[2];
        A line[K + 1][C] = {};
        for_taps(axis[2].begin, axis[2].end, [&](int x) {
          const T* const from = row + axis[2].place[x] * t.strides[3];
          CPPCUDA_UNROLL(8)
          for (int c = 0; c < C; ++c) {
            const A here = static_cast<A>(from[c * t.strides[4]]);
            CPPCUDA_UNROLL(3)
            for (int k = 0; k <= K; ++k) line[k][c] += axis[2].weight[k][x] * here;
          }
        });
        CPPCUDA_UNROLL(3)
        for (int j = 0; j <= K; ++j) {
          const A weight = pick(axis[1].weight[j], y);
          CPPCUDA_UNROLL(3)
          for (int k = 0; k <= K - j; ++k) {
            CPPCUDA_UNROLL(8)
            for (int c = 0; c < C; ++c) plane[j][k][c] += weight * line[k][c];
          }
        }
      }
      CPPCUDA_UNROLL(3)
      for (int i = 0; i <= K; ++i) {
        const A weight = axis[0].weight_of(i, z);
        CPPCUDA_UNROLL(3)
        for (int j = 0; j <= K - i; ++j) {
          CPPCUDA_UNROLL(3)
          for (int k = 0; k <= K - i - j; ++k) {
            CPPCUDA_UNROLL(8)
            for (int c = 0; c < C; ++c) value[i][j][k][c] += weight * plane[j][k][c];
          }
        }
      }
    }
  }

  // By no axis, by one, and by two.
  CPPCUDA_HOST_DEVICE A none(int c) const { return value[0][0][0][c]; }
  CPPCUDA_HOST_DEVICE A by(int d, int c) const { return value[d == 0][d == 1][d == 2][c]; }
  CPPCUDA_HOST_DEVICE A by(int d, int e, int c) const {
    return value[(d == 0) + (e == 0)][(d == 1) + (e == 1)][(d == 2) + (e == 2)][c];
  }
};

// With weights w of the taps and their slopes: K = 0 computes out = sum w x, K = 1 also computes
//
//   grad_points = sum over f of grad_f (sum of the slopes of w times x_f)
//
// and K = 2 computes the derivatives of both in the direction, plus out and grad_points of `second` without it.
template <class T, class P, int K>
struct GatherLoop {
  using A = kit::opmath<T>;

  Grid<P> grid;
  kit::View<const T, 5> input, second;  // [B, D, H, W, F]
  kit::View<const T, 3> grad;           // [B, N, F]; missing if grad_points is
  kit::View<T, 3> out;                  // these two may be missing
  kit::View<A, 3> grad_points;
  int64_t features, count, work;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t points = grid.points.sizes[1], b = i / points, n = i % points;
    Taps<A> axis[3];
    A direction[3], slopes[3] = {};
    CPPCUDA_UNROLL(3)
    for (int d = 0; d < 3; ++d) {
      grid.set(d, b, n, K + 1, axis[d]);
      direction[d] = K == 2 ? grid.template along<A>(d, b, n) : A(0);
    }
    int64_t f = 0;
#if !defined(__CUDA_ARCH__)
    for (; f + 8 <= features; f += 8) add<8>(b, n, f, axis, direction, slopes);
#endif
    for (; f < features; ++f) add<1>(b, n, f, axis, direction, slopes);
    if constexpr (K > 0) {
      if (grad_points.data == nullptr) return;
      CPPCUDA_UNROLL(3)
      for (int d = 0; d < 3; ++d) {
        if (d >= grid.first_axis) grad_points(b, n, d - grid.first_axis) = slopes[d];
      }
    }
  }

 private:
  template <int C>
  CPPCUDA_HOST_DEVICE void add(int64_t b, int64_t n, int64_t f, const Taps<A> (&axis)[3], const A (&direction)[3],
                               A (&slopes)[3]) const {
    Derivatives<A, K, C> of_input;
    if (input.data != nullptr) of_input.sum(input, b, f, axis);
    Derivatives<A, K == 2 ? 1 : 0, C> of_second;
    if constexpr (K == 2) {
      if (second.data != nullptr) of_second.sum(second, b, f, axis);
    }
    CPPCUDA_UNROLL(8)
    for (int c = 0; c < C; ++c) {
      A value = K == 2 ? of_second.none(c) : of_input.none(c);
      if constexpr (K == 2) {
        CPPCUDA_UNROLL(3)
        for (int d = 0; d < 3; ++d) value += direction[d] * of_input.by(d, c);
      }
      if (out.data != nullptr) out(b, n, f + c) = static_cast<T>(value);
      if constexpr (K > 0) {
        if (grad.data == nullptr) continue;
        const A g = static_cast<A>(grad(b, n, f + c));
        CPPCUDA_UNROLL(3)
        for (int d = 0; d < 3; ++d) {
          A slope = K == 1 ? of_input.by(d, c) : A(0);
          if constexpr (K == 2) {
            slope = of_second.by(d, c);
            CPPCUDA_UNROLL(3)
            for (int e = 0; e < 3; ++e) slope += direction[e] * of_input.by(d, e, c);
          }
          slopes[d] += g * slope;
        }
      }
    }
  }
};

// The weights of a point's taps or, if a direction is given, their derivatives in it.
template <class A>
struct Weights {
  Taps<A> axis[3];
  A direction[3] = {};
  bool has_direction;

  // The factors of a line along the last axis: of its weights, and of their slopes.
  struct Line {
    A weight, slope;
  };

  template <class P>
  CPPCUDA_HOST_DEVICE Weights(const Grid<P>& grid, int64_t b, int64_t n) : has_direction(grid.direction.data) {
    CPPCUDA_UNROLL(3)
    for (int d = 0; d < 3; ++d) {
      grid.set(d, b, n, has_direction ? 2 : 1, axis[d]);
      if (has_direction) direction[d] = grid.template along<A>(d, b, n);
    }
  }

  CPPCUDA_HOST_DEVICE Line line(int z, int y) const {
    const A of_z = axis[0].weight_of(0, z), of_y = axis[1].weight_of(0, y);
    if (!has_direction) return {of_z * of_y, A(0)};
    return {direction[0] * axis[0].weight_of(1, z) * of_y + direction[1] * of_z * axis[1].weight_of(1, y),
            direction[2] * (of_z * of_y)};
  }
  CPPCUDA_HOST_DEVICE A weight(const Line& line, int x) const {
    const A product = line.weight * pick(axis[2].weight[0], x);
    return has_direction ? product + line.slope * pick(axis[2].weight[1], x) : product;
  }
};

// table += w grad, or the derivative of w in the direction times grad. The coefficients of a batch are divided into
// `shares` along an axis. Each is the work of one thread, which takes the points in order, so that the number of
// threads does not change the sums. On CUDA they are sums of float atomics.
template <class T, class P>
struct ScatterLoop {
  using A = kit::opmath<T>;

  Grid<P> grid;
  kit::View<const T, 3> grad;
  kit::View<A, 5> table;
  int64_t features, shares, count, work;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t points = grid.points.sizes[1];
#if defined(__CUDA_ARCH__)
    add(i / points, i % points, 0, grid.size[grid.first_axis]);
#else
    const int64_t size = grid.size[grid.first_axis], share = i % shares;
    for (int64_t n = 0; n < points; ++n) add(i / shares, n, size * share / shares, size * (share + 1) / shares);
#endif
  }

 private:
  CPPCUDA_HOST_DEVICE void add(int64_t b, int64_t n, int64_t begin, int64_t end) const {
    const int divided = grid.first_axis;
#if !defined(__CUDA_ARCH__)
    Taps<A> taps;
    grid.set(divided, b, n, 0, taps);
    bool is_mine = false;
    for_taps(taps.begin, taps.end, [&](int k) { is_mine |= taps.place[k] >= begin && taps.place[k] < end; });
    if (!is_mine) return;
#endif
    const Weights<A> weights(grid, b, n);
    const Taps<A>(&axis)[3] = weights.axis;
    for (int z = axis[0].begin; z < axis[0].end; ++z) {
      for (int y = axis[1].begin; y < axis[1].end; ++y) {
        const int64_t row = pick(axis[0].place, z), column = pick(axis[1].place, y);
        const int64_t place = divided == 0 ? row : column;
        if (place < begin || place >= end) continue;
        const auto line = weights.line(z, y);
        for (int x = axis[2].begin; x < axis[2].end; ++x) {
          const A weight = weights.weight(line, x);
          A* const to = &table(b, row, column, pick(axis[2].place, x), int64_t{0});
          for (int64_t f = 0; f < features; ++f) {
            const A term = weight * static_cast<A>(grad(b, n, f));
#if defined(__CUDA_ARCH__)
            atomicAdd(to + f, term);
#else
            to[f] += term;
#endif
          }
        }
      }
    }
  }
};

// The terms of a scatter in a fixed order (interpolation/params.h). A step is a point.
template <class P>
struct TermsLoop {
  using A = kit::opmath<P>;

  Grid<P> grid;
  int64_t rows, first;  // of all batches; the first point
  interpolation::RowNumbers row;
  int32_t* term;
  A* weight;
  int64_t count, work;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t points = grid.points.sizes[1], b = (first + i) / points, n = (first + i) % points;
    const Weights<A> weights(grid, b, n);
    const Taps<A>(&axis)[3] = weights.axis;
    const int taps = grid.order + 1;
    int64_t at = i;
    for (int z = 0; z < (grid.first_axis == 0 ? taps : 1); ++z) {
      for (int y = 0; y < taps; ++y) {
        const auto line = weights.line(z, y);
        for (int x = 0; x < taps; ++x, at += count) {
          const bool is_there = axis[0].has(z) && axis[1].has(y) && axis[2].has(x);
          const int64_t place = (pick(axis[0].place, z) * grid.size[1] + pick(axis[1].place, y)) * grid.size[2];
          const int64_t own = rows / grid.points.sizes[0] * b + place + pick(axis[2].place, x);
          row.set(at, is_there ? own : rows);
          term[at] = static_cast<int32_t>(at);
          weight[at] = weights.weight(line, x);
        }
      }
    }
  }
};

}  // namespace cppcuda::ops::spline_sample
