#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/functions.h"

namespace second {

namespace kit = cppcuda::kit;

// An elementwise operator with an attribute of each type: y x^degree, or its negative, and at most `limit`.
struct Blend {
  static constexpr char schema[] =
      "second::blend(Tensor x, Tensor y, int degree=2, bool negate=False, float? limit=None, float scale=1.0)";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(A x, A y, int64_t degree, bool negate, kit::OptionalNumber<A> limit, A scale) {
    A result = scale * y;
    for (int64_t i = 0; i < degree; ++i) result = result * x;
    if (negate) result = -result;
    return limit.has_value ? kit::min(result, limit.value) : result;
  }
};

}  // namespace second
