#pragma once

// Corner c = 4i + 2j + k lies at (i, j, k) of the voxel, i, j, k in {0, 1}. The weight of a corner
// is a product of one factor per axis, (1 - p) / 2 or (1 + p) / 2 for a coordinate p in [-1, 1]. (A
// weight that is 1 minus the others would lose its digits near the corners.)

#include <c10/macros/Macros.h>

namespace cppcuda::ops::trilinear {

// A is the type that sums are taken in.
template <class A>
struct Voxel {
  A axis[3][2];

  template <class P>
  C10_HOST_DEVICE Voxel(P x, P y, P z) {
    const A point[3] = {static_cast<A>(x), static_cast<A>(y), static_cast<A>(z)};
    for (int d = 0; d < 3; ++d) {
      axis[d][0] = (A(1) - point[d]) / A(2);
      axis[d][1] = (A(1) + point[d]) / A(2);
    }
  }

  C10_HOST_DEVICE A weight(int c) const { return axis[0][c >> 2] * axis[1][c >> 1 & 1] * axis[2][c & 1]; }

  // The derivative of weight(c) by coordinate d: the factor of axis d becomes -1/2 or 1/2.
  C10_HOST_DEVICE A slope(int c, int d) const {
    const int bit[3] = {c >> 2, c >> 1 & 1, c & 1};
    const int e = d == 0 ? 1 : 0, f = d == 2 ? 1 : 2;
    return (bit[d] ? A(0.5) : A(-0.5)) * axis[e][bit[e]] * axis[f][bit[f]];
  }
};

}  // namespace cppcuda::ops::trilinear
