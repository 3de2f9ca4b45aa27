#pragma once

#include "cppcuda/kit/elementwise/points.h"
#include "cppcuda/kit/math/functions.h"

namespace second {

namespace kit = cppcuda::kit;

// A formula of points whose gradient is written by hand: v / |v|.
struct Normalize {
  static constexpr char schema[] = "second::normalize(Tensor v[..., 3]) -> Tensor[..., 3]";

  template <class A>
  CPPCUDA_HOST_DEVICE static kit::Array<A, 3> forward(kit::Array<A, 3> v) {
    return v / kit::sqrt(kit::dot(v, v));
  }

  template <class A>
  CPPCUDA_HOST_DEVICE static kit::Array<A, 3> backward(kit::Array<A, 3> grad, kit::Array<A, 3> v) {
    const A length = kit::sqrt(kit::dot(v, v));
    const auto y = v / length;
    return (grad - kit::dot(grad, y) * y) / length;
  }
};

}  // namespace second
