#pragma once

#include "cppcuda/kit/rows/formula.h"

namespace second {

namespace kit = cppcuda::kit;

// A formula of rows whose backward reads its output.
struct Softmax {
  static constexpr char schema[] = "second::softmax(Tensor input[..., F]) -> Tensor[..., F]";
  static constexpr auto saves = kit::Saves::output;

  template <class Row, class In>
  CPPCUDA_HOST_DEVICE static void forward(const Row& row, const In& input, auto& output) {
    const auto greatest = row.max([&](auto f) { return input[f]; });
    const auto each = row.keep([&](auto f) { return kit::exp(input[f] - greatest); });
    const auto scale = row.number(1) / each.sum();
    row.for_each([&](auto f) { output.set(f, each[f] * scale); });
  }

  template <class Row, class In>
  CPPCUDA_HOST_DEVICE static void backward(const Row& row, const In& grad, const In& output, auto& grad_input) {
    const auto sum = row.sum([&](auto f) { return grad[f] * output[f]; });
    row.for_each([&](auto f) { grad_input.set(f, output[f] * (grad[f] - sum)); });
  }
};

}  // namespace second
