// The formula of row_norm, from which all kernels and derivatives follow. Change: the schema and forward; backward may
// be left out. A tensor [..., F] has rows, [F] is one row for all, and [...] has a number for each. A is a number for
// the row, a vector of numbers or, for derivatives, a tensor.
// python/my_ops/samples/row_norm.py lists the files that are still the template's.
#pragma once

#include "cppcuda/kit/rows/formula.h"

namespace my_ops {

namespace kit = cppcuda::kit;

struct RowNorm {
  static constexpr char schema[] =
      "my_ops::row_norm(Tensor input[..., F], Tensor weight[F], float eps) -> "
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

}  // namespace my_ops
