#pragma once

#include "cppcuda/kit/elementwise/points.h"

namespace second {

namespace kit = cppcuda::kit;

// Rotates vectors by quaternions (w, x, y, z) of length 1.
struct Rotate {
  static constexpr char schema[] = "second::rotate(Tensor q[..., 4], Tensor v[..., 3]) -> Tensor[..., 3]";

  template <class A>
  CPPCUDA_HOST_DEVICE static kit::Array<A, 3> forward(kit::Array<A, 4> q, kit::Array<A, 3> v) {
    const kit::Array<A, 3> axis{q[1], q[2], q[3]};
    const auto twice = A(2) * kit::cross(axis, v);
    return v + q[0] * twice + kit::cross(axis, twice);
  }
};

}  // namespace second
