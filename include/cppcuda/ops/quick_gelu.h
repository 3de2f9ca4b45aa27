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
//         processed in memory order, and its strides are kept; other inputs give the layout of torch's elementwise ops
//
// 16-bit input is computed in float32. NaN and infinities give the results of this formula: -inf gives NaN.
// Differentiable any number of times, in reverse and forward mode, for which only the input is saved.
//
// Throws c10::Error for other dtypes and layouts.
CPPCUDA_EXPORT at::Tensor quick_gelu(const at::Tensor& input);

// For inference without allocation: in place, and into an existing tensor with the input's shape, dtype and device, and
// any strides that give no two elements the same memory. `out` may be `input`, but must not overlap it otherwise. These
// functions are not differentiable; they throw c10::Error if autograd would lose a gradient, or if `out` has another
// shape.
CPPCUDA_EXPORT at::Tensor& quick_gelu_(at::Tensor& self);
CPPCUDA_EXPORT at::Tensor& quick_gelu_out(at::Tensor& out, const at::Tensor& input);

}  // namespace cppcuda
