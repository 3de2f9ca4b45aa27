#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "cppcuda/kit/math/select.h"
#include "interpolation/cells.h"

namespace cppcuda::ops::grid_sample3d {

using interpolation::Cells;
using kit::select;

enum class Padding { zeros, border, reflection };

// The conventions of F.grid_sample: -1 and 1 are the outer borders of the first and the last voxel of an axis, or, if
// corners are aligned, their centres.
struct Lookup {
  static constexpr int64_t max_size = int64_t{1} << 30;  // so that a voxel's index fits into 32 bits
  static constexpr int axes = 3;
  static constexpr bool is_curved = false;
  static constexpr bool gives_slopes = false;
  static constexpr bool has_levels = false;

  int64_t size[3];  // W, H, D: the axes of x, y and z; at most max_size each
  Padding padding;
  bool align_corners;

  CPPCUDA_HOST_DEVICE int levels() const { return 1; }
  CPPCUDA_HOST_DEVICE int64_t first_row(int) const { return 0; }
  CPPCUDA_HOST_DEVICE int64_t end_row(int) const { return size[0] * size[1] * size[2]; }

  template <class A, int L>
  CPPCUDA_HOST_DEVICE void locate(int64_t, int64_t, int, int, const A (&point)[3][L], Cells<A, 3, L>& cells) const {
    A first[3][L];  // the voxel on the near side
    for (int d = 0; d < 3; ++d) {
      A position[L];
      const A voxels = static_cast<A>(size[d]), scale = (align_corners ? voxels - 1 : voxels) / 2;
      for (int i = 0; i < L; ++i) {
        // The sum with 0 rounds the product, as F.grid_sample does, where the compiler may use fma. A point at the
        // centre of a voxel would else be on either side of it.
        const A product = (point[d][i] + 1) * voxels + A(0);
        position[i] = align_corners ? (point[d][i] + 1) / 2 * (voxels - 1) : (product - 1) / 2;
        cells.slope[d][i] = scale;
      }
      if (padding == Padding::reflection) {
        for (int i = 0; i < L; ++i) reflect(voxels, position[i], cells.slope[d][i]);
      }
      if (padding != Padding::zeros) {
        for (int i = 0; i < L; ++i) clamp(voxels, position[i], cells.slope[d][i]);
      }
      for (int i = 0; i < L; ++i) {
        first[d][i] = std::floor(position[i]);
        // The corners of NaN and of infinities are missing. Weights of NaN would make the gradient NaN all the same.
        const bool is_finite = position[i] - position[i] == 0;
        cells.near[d][i] = is_finite ? first[d][i] + 1 - position[i] : A(0);
        cells.far[d][i] = is_finite ? position[i] - first[d][i] : A(0);
      }
    }
    if constexpr (L > 1) {
      cells.is_narrow = end_row(0) <= std::numeric_limits<int32_t>::max() / 4;
      if (cells.is_narrow) return set_rows<int32_t>(first, cells.narrow_row);
    }
    set_rows<int64_t>(first, cells.row);
  }

 private:
  // The rows of the corners, from the voxels on the near side.
  template <class I, class A, int L>
  CPPCUDA_HOST_DEVICE void set_rows(const A (&first)[3][L], I (&rows)[8][L]) const {
    // What each side adds to the row. Compared as numbers, so that infinities and NaN are outside too.
    I part[3][2][L], outside[3][2][L];
    I stride = 1;
    for (int d = 0; d < 3; ++d) {
      const A last = static_cast<A>(size[d] - 1);
      const I end = static_cast<I>(size[d]);
      for (int side = 0; side < 2; ++side) {
        for (int i = 0; i < L; ++i) {
          const A voxel = first[d][i] + static_cast<A>(side), positive = voxel > 0 ? voxel : A(0);
          const A inside = positive < last ? positive : last;
          const I index = static_cast<I>(static_cast<int32_t>(inside));
          part[d][side][i] = index * stride;
          // In float32 `last` may be rounded up.
          outside[d][side][i] = (voxel == inside ? I(0) : I(-1)) | (index < end ? I(0) : I(-1));
        }
      }
      stride *= end;
    }
    CPPCUDA_UNROLL(8)
    for (int c = 0; c < 8; ++c) {
      const int x = Cells<A, 3, L>::is_far(c, 0), y = Cells<A, 3, L>::is_far(c, 1), z = Cells<A, 3, L>::is_far(c, 2);
      for (int i = 0; i < L; ++i) {
        const I row = part[0][x][i] + part[1][y][i] + part[2][z][i];
        rows[c][i] = row | outside[0][x][i] | outside[1][y][i] | outside[2][z][i];
      }
    }
  }

  // Mirrors a position at the first and the last voxel, or at their outer borders, until it is between them.
  template <class A>
  CPPCUDA_HOST_DEVICE void reflect(A voxels, A& position, A& slope) const {
    const A low = align_corners ? A(0) : A(-0.5), span = align_corners ? voxels - 1 : voxels;
    const A distance = std::abs(position - low), turns = std::floor(distance / span);
    const A rest = distance - turns * span;
    const bool is_even = std::floor(turns / 2) * 2 == turns, has_span = span > 0;
    const A mirrored = is_even ? rest + low : span - rest + low;
    const bool turned = (position < low) == is_even;  // an odd number of times in all
    slope = has_span ? (turned ? -slope : slope) : A(0);
    position = has_span ? mirrored : A(0);
  }

  // The borders count as outside, as in F.grid_sample. NaN becomes the last voxel.
  template <class A>
  CPPCUDA_HOST_DEVICE static void clamp(A voxels, A& position, A& slope) {
    const A last = voxels - 1;
    const bool is_inside = position > 0 && position < last;
    slope = is_inside ? slope : A(0);
    position = position <= 0 ? A(0) : position < last ? position : last;
  }
};

}  // namespace cppcuda::ops::grid_sample3d
