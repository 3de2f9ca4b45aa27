// swish as a C++ function. Change: its arguments and the comment.
#pragma once

#include <ATen/core/Tensor.h>
#include <my_ops/export.h>

namespace my_ops {

// x * sigmoid(beta * x), elementwise, as a new tensor. Differentiable any number of times.
MY_OPS_EXPORT at::Tensor swish(const at::Tensor& x, double beta);

}  // namespace my_ops
