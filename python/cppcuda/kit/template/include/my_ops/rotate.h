// rotate as a C++ function. Change: its arguments and the comment.
#pragma once

#include <ATen/core/Tensor.h>
#include <my_ops/export.h>

namespace my_ops {

// Rotates vectors v, [..., 3], by quaternions q, [..., 4], of length 1 with the real part first. The other dims
// broadcast. Differentiable any number of times.
MY_OPS_EXPORT at::Tensor rotate(const at::Tensor& q, const at::Tensor& v);

}  // namespace my_ops
