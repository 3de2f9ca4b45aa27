// The formula of rotate, from which all kernels and derivatives follow. Change: the schema and forward. The sizes after
// "..." are those of the arrays. A is a number, a vector of numbers or, for derivatives, one of these with its
// derivatives. A member backward may compute the gradients.
// python/my_ops/samples/rotate.py lists the files that are still the template's.
#pragma once

#include "cppcuda/kit/elementwise/points.h"

namespace my_ops {

namespace kit = cppcuda::kit;

struct Rotate {
  static constexpr char schema[] = "my_ops::rotate(Tensor q[..., 4], Tensor v[..., 3]) -> Tensor[..., 3]";

  template <class A>
  CPPCUDA_HOST_DEVICE static kit::Array<A, 3> forward(kit::Array<A, 4> q, kit::Array<A, 3> v) {
    const kit::Array<A, 3> axis{q[1], q[2], q[3]};
    const auto twice = A(2) * kit::cross(axis, v);
    return v + q[0] * twice + kit::cross(axis, twice);
  }
};

}  // namespace my_ops
