#pragma once

#include "cppcuda/kit/elementwise/points.h"

namespace second {

namespace kit = cppcuda::kit;

// Projects points, in the coordinates of a pinhole camera, to pixels. camera is (fx, fy, cx, cy), and k has the radial
// distortion k1, k2, k3 and the tangential one p1, p2. D. C. Brown, "Close-range camera calibration", 1971.
struct Project {
  static constexpr char schema[] =
      "second::project(Tensor points[..., 3], Tensor camera[..., 4], Tensor k[..., 5]) -> Tensor[..., 2]";

  template <class A>
  CPPCUDA_HOST_DEVICE static kit::Array<A, 2> forward(kit::Array<A, 3> points, kit::Array<A, 4> camera,
                                                      kit::Array<A, 5> k) {
    const A inverse = A(1) / points[2], x = points[0] * inverse, y = points[1] * inverse, square = x * x + y * y;
    const A radial = A(1) + square * (k[0] + square * (k[1] + square * k[2]));
    const A two_xy = A(2) * x * y;
    const A u = x * radial + k[3] * two_xy + k[4] * (square + A(2) * x * x);
    const A v = y * radial + k[4] * two_xy + k[3] * (square + A(2) * y * y);
    return {camera[0] * u + camera[2], camera[1] * v + camera[3]};
  }
};

}  // namespace second
