#pragma once

#include "cppcuda/kit/rows/formula.h"

namespace second {

namespace kit = cppcuda::kit;

// A formula of rows: each row divided by the root of its mean square, times a weight (Zhang and Sennrich, "Root Mean
// Square Layer Normalization", 2019).
struct RmsNorm {
  static constexpr char schema[] =
      "second::rms_norm(Tensor input[..., F], Tensor weight[F], float eps=1e-6) -> "
      "(Tensor output[..., F], hidden Tensor rstd[...] opmath)";

  template <class Row, class In, class A>
  CPPCUDA_HOST_DEVICE static void forward(const Row& row, const In& input, const In& weight, A eps, auto& output,
                                          A& rstd) {
    const A square = row.mean([&](auto f) { return input[f] * input[f]; });
    rstd = A(1) / kit::sqrt(square + eps);
    row.for_each([&](auto f) { output.set(f, rstd * input[f] * weight[f]); });
  }

  template <class Row, class In, class A>
  CPPCUDA_HOST_DEVICE static void backward(const Row& row, const In& grad, const In& input, const In& weight, A rstd,
                                           A /*eps*/, auto& grad_input, auto& grad_weight) {
    const A mean = rstd * row.mean([&](auto f) { return grad[f] * weight[f] * input[f]; });
    row.for_each([&](auto f) {
      const A y = input[f] * rstd;
      grad_input.set(f, rstd * (grad[f] * weight[f] - y * mean));
      grad_weight.set(f, grad[f] * y);
    });
  }
};

}  // namespace second
