#pragma once

#include "cppcuda/kit/rows/formula.h"

namespace second {

namespace kit = cppcuda::kit;

// A formula of rows that reads at an offset, without backward: x cos + rotated(x) sin, where rotated exchanges the
// halves of a row and negates the first one (Su et al., "RoFormer: Enhanced Transformer with Rotary Position
// Embedding", 2021).
struct Rotary {
  static constexpr char schema[] =
      "second::rotary(Tensor x[..., F], Tensor cos[..., F], Tensor sin[..., F]) -> Tensor[..., F]";

  template <class Row, class In>
  CPPCUDA_HOST_DEVICE static void forward(const Row& row, const In& x, const In& cos, const In& sin, auto& output) {
    const int64_t half = row.size() / 2;
    row.for_each([&](auto f) {
      const auto sign = row.number(1) - row.number(2) * row.is_before(f, half);
      output.set(f, x[f] * cos[f] + sign * row.rolled(x, f, half) * sin[f]);
    });
  }
};

}  // namespace second
