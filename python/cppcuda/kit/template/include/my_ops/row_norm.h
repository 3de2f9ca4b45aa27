// row_norm as a C++ function. Change: its arguments and the comment.
#pragma once

#include <ATen/core/Tensor.h>
#include <my_ops/export.h>

namespace my_ops {

// Divides each row by the root of its mean square: weight * input / sqrt(mean(input^2) + eps), with the mean over the
// last dim. Sums are taken in float32 or wider. Differentiable in input and weight, any number of times.
MY_OPS_EXPORT at::Tensor row_norm(const at::Tensor& input,   // [..., F], with any strides
                                  const at::Tensor& weight,  // [F]
                                  double eps);

}  // namespace my_ops
