#pragma once

#include <cstdint>
#include <limits>

#include "cppcuda/kit/cuda/fail.h"
#include "interpolation/cells.h"
#include "interpolation/params.h"

namespace cppcuda::ops::trilinear_indexed {

using interpolation::Cells;
using kit::RowsOf;

// A point is in the cell from -1 to 1, whose corners are rows of the table. I is the dtype of the indices.
template <class I>
struct Lookup {
  static constexpr int axes = 3;
  static constexpr bool is_curved = false;
  static constexpr bool gives_slopes = true;
  static constexpr bool has_levels = false;
  static constexpr int64_t none = std::numeric_limits<int64_t>::max();

  // Indices that are loaded together.
  struct alignas(16) Pack {
    static constexpr int size = 16 / sizeof(I);
    I index[size];
  };

  RowsOf<I> corners;  // [B, N, 8]
  int64_t points;     // N
  int64_t rows;       // of the table
  int64_t* offender;  // CPU only: the number of the first index that is out of range; starts as `none`

  CPPCUDA_HOST_DEVICE int levels() const { return 1; }
  CPPCUDA_HOST_DEVICE int64_t first_row(int) const { return 0; }
  CPPCUDA_HOST_DEVICE int64_t end_row(int) const { return rows; }

  template <class A, int L>
  CPPCUDA_HOST_DEVICE void locate(int64_t batch, int64_t n, int valid, int, const A (&point)[3][L],
                                  Cells<A, 3, L>& cells) const {
    for (int d = 0; d < 3; ++d) {
      for (int i = 0; i < L; ++i) {
        // Each factor is rounded once. Near the corners, 1 minus the other factor would lose digits.
        cells.near[d][i] = A(0.5) - A(0.5) * point[d][i];
        cells.far[d][i] = A(0.5) + A(0.5) * point[d][i];
        cells.slope[d][i] = A(0.5);
      }
    }
    if constexpr (L > 1) {
      cells.is_narrow =
          rows <= std::numeric_limits<int32_t>::max() && read_rows(*this, batch, n, valid, cells.narrow_row);
      if (cells.is_narrow) return;
    }
    for (int i = 0; i < L; ++i) {
      const I* from = corners.at(batch, n + (i < valid ? i : valid - 1));
      if (L == 1 && corners.inner == 1 && reinterpret_cast<uintptr_t>(from) % sizeof(Pack) == 0) {
        // On a GPU each load of a warp takes time for every line that it touches.
        for (int k = 0; k < 8 / Pack::size; ++k) {
          const Pack pack = reinterpret_cast<const Pack*>(from)[k];
          for (int j = 0; j < Pack::size; ++j) cells.row[k * Pack::size + j][i] = pack.index[j];
        }
      } else {
        for (int c = 0; c < 8; ++c) cells.row[c][i] = from[c * corners.inner];
      }
    }
    bool out_of_range = false;
    for (int c = 0; c < 8; ++c) {
      for (int i = 0; i < L; ++i) out_of_range |= cells.row[c][i] < -1 || cells.row[c][i] >= rows;
    }
    if (out_of_range) refuse(batch, n, valid, cells);
  }

 private:
  // Corners out of range count as missing until the caller throws.
  template <class A, int L>
  CPPCUDA_HOST_DEVICE void refuse([[maybe_unused]] int64_t batch, [[maybe_unused]] int64_t n,
                                  [[maybe_unused]] int valid, Cells<A, 3, L>& cells) const {
#if defined(CPPCUDA_DEVICE_CODE)
    kit::fail_on_device("trilinear_indexed", "corners must be in [-1, V)");
#else
    int64_t first = none;
    for (int i = valid - 1; i >= 0; --i) {
      for (int c = 7; c >= 0; --c) {
        const int64_t row = cells.row[c][i];
        if (row < -1 || row >= rows) first = ((batch * points) + n + i) * 8 + c;
      }
    }
    int64_t before = __atomic_load_n(offender, __ATOMIC_RELAXED);
    while (first < before &&
           !__atomic_compare_exchange_n(offender, &before, first, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
#endif
    for (int c = 0; c < 8; ++c) {
      for (int i = 0; i < L; ++i) {
        if (cells.row[c][i] < -1 || cells.row[c][i] >= rows) cells.row[c][i] = -1;
      }
    }
  }
};

}  // namespace cppcuda::ops::trilinear_indexed
