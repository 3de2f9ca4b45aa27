#pragma once

// Corner c = 4i + 2j + k lies at (i, j, k) of the voxel, i, j, k in {0, 1}. The weight of a corner
// is a product of one factor per axis, (1 - p) / 2 or (1 + p) / 2 for a coordinate p in [-1, 1].
// Each factor is rounded once. Near the corners, 1 minus the other factor would lose digits.

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/select.h"

namespace cppcuda::ops::trilinear {

using kit::select;

// Whether corner c is on the far side along axis d.
CPPCUDA_HOST_DEVICE constexpr bool is_far(int c, int d) { return c >> (2 - d) & 1; }

// A is the type of sums. A corner is a number, or, if A is a vector, one number per lane, and is_far returns a mask.
template <class A>
struct Voxel {
  A point[3];

  template <class P>
  CPPCUDA_HOST_DEVICE Voxel(P x, P y, P z) : point{static_cast<A>(x), static_cast<A>(y), static_cast<A>(z)} {}

  // Half the coordinate d of corner c.
  template <class Corner>
  CPPCUDA_HOST_DEVICE static A half_corner(const Corner& c, int d) {
    return select(is_far(c, d), A(0.5), A(-0.5));
  }

  // The factor of axis d in the weight of corner c.
  template <class Corner>
  CPPCUDA_HOST_DEVICE A factor(const Corner& c, int d) const {
    return A(0.5) + half_corner(c, d) * point[d];
  }

  template <class Corner>
  CPPCUDA_HOST_DEVICE A weight(const Corner& c) const {
    return factor(c, 0) * factor(c, 1) * factor(c, 2);
  }

  // The derivative of weight(c) with respect to coordinate d.
  template <class Corner>
  CPPCUDA_HOST_DEVICE A slope(const Corner& c, int d) const {
    return half_corner(c, d) * factor(c, other(d, 0)) * factor(c, other(d, 1));
  }

  // The derivatives of weight(c) and of slope(c, d) in a direction.
  template <class Corner>
  CPPCUDA_HOST_DEVICE A weight_along(const Corner& c, const A (&direction)[3]) const {
    return direction[0] * slope(c, 0) + direction[1] * slope(c, 1) + direction[2] * slope(c, 2);
  }
  template <class Corner>
  CPPCUDA_HOST_DEVICE A slope_along(const Corner& c, int d, const A (&direction)[3]) const {
    const int a = other(d, 0), b = other(d, 1);
    return half_corner(c, d) *
           (direction[a] * (half_corner(c, a) * factor(c, b)) + direction[b] * (half_corner(c, b) * factor(c, a)));
  }

 private:
  // The first and the second of the axes that are not d.
  CPPCUDA_HOST_DEVICE static constexpr int other(int d, int i) { return i == 0 ? (d == 0 ? 1 : 0) : (d == 2 ? 1 : 2); }
};

}  // namespace cppcuda::ops::trilinear
