#pragma once

#include <cmath>

#include "cppcuda/kit/loop.h"

namespace second {

namespace kit = cppcuda::kit;

// A step is a number of `z`, whose last dim has its real and its imaginary part.
template <class T>
struct ModReluLoop {
  kit::View<const T, 3> z;
  kit::View<const T, 1> bias;
  kit::View<T, 3> output;
  int64_t count, work = 2;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / bias.sizes[0], f = i % bias.sizes[0];
    const T real = z(row, f, 0), imaginary = z(row, f, 1), size = std::hypot(real, imaginary), changed = size + bias(f);
    const T factor = size == 0 || changed < 0 ? T(0) : changed / size;
    output(row, f, 0) = real * factor;
    output(row, f, 1) = imaginary * factor;
  }
};

}  // namespace second
