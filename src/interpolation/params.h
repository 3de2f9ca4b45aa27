#pragma once

// The arguments of the kernels, CPU and CUDA: raw pointers, strides in elements, sizes.

#include <cstdint>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/rows.h"
#include "interpolation/cells.h"

namespace cppcuda::interpolation {

using kit::RowsOf;

// What all kernels have in common. A level has `features` columns of `grad` and of the outputs.
template <class T, class P, class Lookup_>
struct Interpolation {
  using Element = T;
  using Lookup = Lookup_;

  Lookup lookup;
  int64_t batches, points, features;
  RowsOf<P> point;      // [B, N, axes]
  RowsOf<P> direction;  // the same; may be null
  Order order = {};     // only given with a direction

  CPPCUDA_HOST_DEVICE int64_t columns() const { return lookup.levels() * features; }
};

// With the weights w of a point's corners, differentiated by `order`, or, if a direction is given, the derivatives of
// these in that direction, and the table's rows x of the corners:
//
//   out = sum_c w_c x_c                       grad_points = sum_c slopes of w_c (x_c . grad)
//
// `second` adds the same terms with weights without a direction.
template <class T, class P, class Lookup>
struct GatherParams : Interpolation<T, P, Lookup> {
  RowsOf<T> table, second;      // [B, V, F]; second may be null
  RowsOf<T> grad;               // [B, N, levels F]; null if grad_points is
  T* out;                       // contiguous, [B, N, levels F], or null
  T* out_slopes;                // contiguous, [B, N, F, axes]: the derivatives of out by the coordinates, or null
  kit::opmath<T>* grad_points;  // contiguous, [B, N, axes], or null
};

// The transpose: table[row of c] += w_c grad.
template <class T, class P, class Lookup>
struct ScatterParams : Interpolation<T, P, Lookup> {
  RowsOf<T> grad;         // [B, N, levels F]
  kit::opmath<T>* table;  // contiguous, [B, V, F]; on CUDA zeros at first
};

// A scatter that adds in a fixed order has three steps on CUDA: a kernel writes the row and the weight of each term,
// cub sorts the terms by their rows, and a kernel sums the terms of each row in that order. A term is the weight of a
// corner times a row of grad. The points of all batches are numbered; those of the next level follow. A call takes
// `count` of them from `first` on, and corner c of point first + i is term c count + i.

// Numbers of rows in the tables of all batches, in 32 bits if they fit.
struct RowNumbers {
  void* data;
  bool is_wide;

  CPPCUDA_HOST_DEVICE int64_t at(int64_t i) const {
    return is_wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
  CPPCUDA_HOST_DEVICE void set(int64_t i, int64_t row) const {
    if (is_wide) {
      static_cast<int64_t*>(data)[i] = row;
    } else {
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(row);
    }
  }
};

template <class P, class Lookup_>
struct TermParams {
  using Lookup = Lookup_;

  Lookup lookup;
  int64_t batches, points, first, count;
  RowsOf<P> point, direction;  // these and `order` as in Interpolation
  Order order;
  RowNumbers row;          // of each term; the number of all rows if the corner is missing
  int32_t* term;           // the numbers of the terms: 0, 1, 2, ...
  kit::opmath<P>* weight;  // of each term
};

// Sorts the numbers of rows, and the terms with them. The buffers that hold the result are the first ones afterwards.
struct SortParams {
  int64_t terms;
  bool is_wide;    // as in RowNumbers
  int64_t rows;    // no number of a row is larger
  void** row;      // two buffers
  int32_t** term;  // two buffers
  void* memory;    // of *bytes; if it is null, nothing is sorted, and *bytes is set
  size_t* bytes;
};

template <class T>
struct SumParams {
  int64_t batches, points, levels, features, rows;  // rows: of the tables of all batches
  RowsOf<T> grad;                                   // [B, N, levels F]
  kit::opmath<T>* table;                            // contiguous, [B, V, F]; the sums are added to it
  int64_t first = 0, count = 0, terms = 0;
  RowNumbers row = {};            // of each term, sorted
  const int32_t* term = nullptr;  // the numbers of the sorted terms
  const kit::opmath<T>* weight = nullptr;
  kit::opmath<T>* partial = nullptr;  // [runs, F]: sums of terms whose row has terms in an earlier run

  // Threads sum runs of so many terms. Not measured.
  static constexpr int64_t run = 32;
  CPPCUDA_HOST_DEVICE int64_t runs() const { return (terms + run - 1) / run; }
};

}  // namespace cppcuda::interpolation
