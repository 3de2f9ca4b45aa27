#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <tuple>

namespace cppcuda {

// One step of an LLTM, a recurrent cell without a forget gate.
//
//   g0, g1, g2 = [hx, input] weight^T + bias, each with S columns
//   cy = cx + elu(g2) * sigmoid(g0)
//   hy = tanh(cy) * sigmoid(g1)
//
// input   [B, I]       float64, float32, float16 or bfloat16; any strides
// weight  [3S, S + I]  the first S columns multiply hx; in the dtype of input
// bias    [3S]         in the dtype of input
// hx      [B, S]       in the dtype of input
// cx      [B, S]       in the dtype of input, or float32 if input has 16 bits
// returns (hy, cy)     [B, S] each, contiguous, in the dtypes of hx and cx
//
// If every argument has one more dim G in front, one call computes a group of G cells. G, B, I and S may be 0. The
// gates are rounded to the dtype of input, like the result of a linear layer; for 16 bits everything else is computed
// in float32. Differentiable in all arguments, any number of times, in reverse and forward mode.
//
// Throws c10::Error for other ranks, sizes, dtypes or layouts, or if the devices differ.
//
// The cell comes from PyTorch's tutorial on C++ extensions (P. Goldsborough, 2018).
CPPCUDA_EXPORT std::tuple<at::Tensor, at::Tensor> lltm_cell(const at::Tensor& input, const at::Tensor& weight,
                                                            const at::Tensor& bias, const at::Tensor& hx,
                                                            const at::Tensor& cx);

}  // namespace cppcuda
