#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

namespace cppcuda {

// The activation of CLIP-style models, elementwise.
//
//   out = input * sigmoid(1.702 * input)
//
// input   any shape, float64, float32, float16 or bfloat16; any strides
// returns the same shape and dtype, new memory. A dense input of any layout (channels_last, permuted) is
//         processed in memory order, and its strides are kept; others as torch's elementwise ops lay them out
//
// Computed in float32 for 16-bit input. NaN and infinities go through as in that formula: -inf gives
// NaN. Differentiable any number of times, in reverse and forward mode; only the input is saved for it.
//
// Throws c10::Error for other dtypes and layouts.
CPPCUDA_EXPORT at::Tensor quick_gelu(const at::Tensor& input);

// For inference, with no allocation: in place, and into an existing tensor of the input's shape, dtype and device, with
// any strides that give no two elements the same memory. `out` may be `input`, but not overlap it otherwise. They take
// part in no gradient: a call that would lose one is an error (c10::Error), as is an out of another shape.
CPPCUDA_EXPORT at::Tensor& quick_gelu_(at::Tensor& self);
CPPCUDA_EXPORT at::Tensor& quick_gelu_out(at::Tensor& out, const at::Tensor& input);

}  // namespace cppcuda
