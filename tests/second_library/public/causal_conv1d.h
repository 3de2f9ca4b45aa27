#pragma once

#include <cmath>

#include "cppcuda/kit/loop.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {

namespace kit = cppcuda::kit;

// A step is an entry of the output: the sum over k of weight(k) * input(l + k).
template <class T>
struct CausalConvLoop {
  kit::View<const T, 4> input;  // [B, N, C, W - 1 + L]
  kit::View<const T, 3> weight;
  kit::View<const T, 2> bias;  // its address is null if there is none
  kit::View<T, 4> output;
  bool silu;
  int64_t count, work;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    using A = kit::opmath<T>;
    const auto [b, n, c, l] = output.indices(i);
    A sum = bias.data != nullptr ? static_cast<A>(bias(b, c)) : A(0);
    for (int64_t k = 0; k < weight.sizes[2]; ++k) {
      sum += static_cast<A>(weight(b, c, k)) * static_cast<A>(input(b, n, c, l + k));
    }
    output(b, n, c, l) = static_cast<T>(silu ? sum / (1 + std::exp(-sum)) : sum);
  }
};

}  // namespace second
