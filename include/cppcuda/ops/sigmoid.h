#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

namespace cppcuda {

// The logistic function, elementwise.
//
//   out = 1 / (1 + exp(-input))
//
// input   any shape, float64, float32, float16 or bfloat16; any strides
// returns the same shape and dtype, new memory. A dense input of any layout (channels_last, permuted) is
//         processed in memory order, and its strides are kept; others as torch's elementwise ops lay them out
//
// Computed in float32 for 16-bit input. NaN and infinities go through as in at::sigmoid: 0 and 1 at
// -inf and inf. Differentiable any number of times, in reverse and forward mode; the gradient reads the output alone,
// so that the input is not kept alive.
//
// Throws c10::Error for other dtypes and layouts.
CPPCUDA_EXPORT at::Tensor sigmoid(const at::Tensor& input);

// For inference, with no allocation: in place, and into an existing tensor of the input's shape, dtype and device, with
// any strides that give no two elements the same memory. `out` may be `input`, but not overlap it otherwise. They take
// part in no gradient: a call that would lose one is an error (c10::Error), as is an out of another shape.
CPPCUDA_EXPORT at::Tensor& sigmoid_(at::Tensor& self);
CPPCUDA_EXPORT at::Tensor& sigmoid_out(at::Tensor& out, const at::Tensor& input);

}  // namespace cppcuda
