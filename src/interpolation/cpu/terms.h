#pragma once

// The sums over the corners of points. These loops know neither where rows come from nor the dtype of points, and are
// compiled once for all operators (kernel.cpp).

#include "cppcuda/kit/cpu/vec.h"
#include "cppcuda/kit/math/opmath.h"

namespace cppcuda::interpolation {
inline namespace CPPCUDA_ISA {

// Points are computed in blocks.
inline constexpr int block_points = 16;

// The terms of sums over corners, for a block of points: rows and their weights. In sums over two tables the terms of
// the second one follow those of the first.
template <class A, int count>
struct Terms {
  union {
    char* row[count][block_points];  // null if the corner is missing
    // If lanes are points: from the start of the table in elements. If the corner is missing it is ~x, and a scatter
    // adds 0 at x.
    int32_t offset[count][block_points];
  };
  A weight[count][block_points];
  A dot[count][block_points];  // results: the products of rows with grad

  // Prefetches the rows of a point. Loops call this for a point of the next block beside each point of this one,
  // because a burst of prefetches would wait for its first lines.
  CPPCUDA_INLINE void prefetch(int i, int64_t bytes) const {
    for (int64_t line = 0; line < bytes; line += 64) {
#pragma GCC unroll 32
      for (int k = 0; k < count; ++k) {
        // As a number, because null has no further lines. Prefetches of any address are allowed.
        __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(row[k][i]) + line));
      }
    }
  }

  // The same for corner k of the points in a register, from point i on, if lanes are points. Rows are short then.
  template <class T>
  CPPCUDA_INLINE void prefetch(int k, int i, const T* table) const {
#pragma GCC unroll 16
    for (int lane = 0; lane < kit::Vec<A>::lanes; ++lane) __builtin_prefetch(table + offset[k][i + lane]);
  }
};

// The other arguments, for the first point of the block; strides in elements.
template <class T>
struct BlockArguments {
  int valid;  // the number of points
  int64_t features;
  bool has_missing = false;  // whether a corner may be missing; not set in a gather whose lanes are points
  const T *table = nullptr, *second = nullptr;  // of a gather: not null if lanes are points
  bool table_is_large = false;                  // for the first levels of the cache
  kit::opmath<T>* sums = nullptr;               // of a scatter: not null if lanes are points
  int64_t step = 1, second_step = 1;            // from value to value in rows of the tables
  const T* grad = nullptr;                      // not null if the products with it are requested
  int64_t grad_row = 0, grad_step = 1;
  T* out = nullptr;  // not null if it is requested
  int64_t out_row = 0;
};

template <class T, int corners>
struct TermLoops {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;

  // Up to so many features, lanes may be points.
  static constexpr int64_t max_features_of_points = 3;

  // out[f] = sum_k weight_k row_k[f], and dot_k = sum_f row_k[f] grad[f]. Lanes are points if `table` is given.
  static void gather(Terms<A, corners>& terms, const Terms<A, corners>& next, const BlockArguments<T>& a);
  static void gather(Terms<A, 2 * corners>& terms, const Terms<A, 2 * corners>& next, const BlockArguments<T>& a);

  // out[f] as before, and out_slopes[f, d] = sum_k slope_k[d] row_k[f].
  template <int axes>
  static void gather_slopes(const Terms<A, corners>& terms, const Terms<A, corners>& next, const BlockArguments<T>& a,
                            const A (&slope)[corners][axes][block_points], T* out_slopes);

  // row_k[f] += weight_k grad[f], in rows of the accumulation type. Lanes are points if `sums` is given; else no row
  // may be missing if there are few features.
  static constexpr bool is_few(int64_t features) { return features == 4 || (features == 8 && V::lanes > 8); }
  static void scatter(const Terms<A, corners>& terms, const Terms<A, corners>& next, const BlockArguments<T>& a);
};

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::interpolation
