#pragma once

#include "cppcuda/kit/math/array.h"
#include "cppcuda/kit/rows/formula.h"

namespace second {

namespace kit = cppcuda::kit;

// A formula of rows with two statistics (Ba, Kiros and Hinton, "Layer Normalization", 2016).
struct LayerNorm {
  static constexpr char schema[] =
      "second::layer_norm(Tensor input[..., F], Tensor weight[F], Tensor bias[F], float eps=1e-5) -> "
      "(Tensor output[..., F], hidden Tensor mean[...] opmath, hidden Tensor rstd[...] opmath)";

  template <class Row, class In, class A>
  CPPCUDA_HOST_DEVICE static void forward(const Row& row, const In& input, const In& weight, const In& bias, A eps,
                                          auto& output, A& mean, A& rstd) {
    mean = row.mean([&](auto f) { return input[f]; });
    const A variance = row.mean([&](auto f) {
      const A x = input[f] - mean;
      return x * x;
    });
    rstd = A(1) / kit::sqrt(variance + eps);
    row.for_each([&](auto f) { output.set(f, (input[f] - mean) * rstd * weight[f] + bias[f]); });
  }

  template <class Row, class In, class A>
  CPPCUDA_HOST_DEVICE static void backward(const Row& row, const In& grad, const In& input, const In& weight,
                                           const In& /*bias*/, A mean, A rstd, A /*eps*/, auto& grad_input,
                                           auto& grad_weight, auto& grad_bias) {
    const auto means = row.mean([&](auto f) {
      const A g = grad[f] * weight[f];
      return kit::Array<A, 2>{g, g * (input[f] - mean)};
    });
    const A mean_y = means[1] * rstd;
    row.for_each([&](auto f) {
      const A y = (input[f] - mean) * rstd;
      grad_input.set(f, rstd * (grad[f] * weight[f] - means[0] - y * mean_y));
      grad_weight.set(f, grad[f] * y);
      grad_bias.set(f, grad[f]);
    });
  }
};

}  // namespace second
