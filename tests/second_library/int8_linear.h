#pragma once

#include "cppcuda/kit/loop.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {

namespace kit = cppcuda::kit;

// A step is an entry of the output.
template <class T>
struct Int8LinearLoop {
  kit::View<const T, 2> x;
  kit::View<const int8_t, 2> weight;
  kit::View<const T, 1> scale;
  kit::View<const bool, 1> mask;  // its address is null if there is none
  kit::View<T, 2> output;
  int64_t count, work;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    using A = kit::opmath<T>;
    const auto [row, o] = output.indices(i);
    A sum = 0;
    if (mask.data == nullptr || mask(row)) {
      for (int64_t j = 0; j < x.sizes[1]; ++j) sum += static_cast<A>(x(row, j)) * static_cast<A>(weight(o, j));
    }
    output(row, o) = static_cast<T>(sum * static_cast<A>(scale(o)));
  }
};

}  // namespace second
