#pragma once

#include <ATen/core/Tensor.h>
#include <cppcuda/export.h>

#include <tuple>

namespace cppcuda {

// An LLTM over a sequence: lltm_cell for each step t, with the weights of lltm_cell.
//
//   h_t, c_t = lltm_cell(input[t], weight, bias, h_(t - 1), c_(t - 1))
//
// input   [T, B, I]    float64, float32, float16 or bfloat16; any strides
// weight  [3S, S + I]  the first S columns multiply the state h; in the dtype of input
// bias    [3S]         in the dtype of input
// h0      [B, S]       the state before the first step; in the dtype of input
// c0      [B, S]       in the dtype of input, or float32 if input has 16 bits
// returns (output, hn, cn): output [T, B, S] has h_t of every step, hn and cn [B, S] are the state after the last one,
//         h0 and c0 if T is 0. All are contiguous, in the dtypes of h0 and c0.
//
// If every argument has one more dim G in front, one call computes a group of G sequences with weights of their own. T,
// G, B, I and S may be 0. The products of all inputs are one matrix product. Equal to the cell step by step but for
// rounding. Differentiable in all arguments, any number of times, in reverse and forward mode. The first derivative in
// reverse mode is one pass over the steps, and keeps 3S gates, S cell states and the S outputs per step and row, and
// the input; forward mode and higher orders go through the cell step by step.
//
// Throws c10::Error for other ranks, sizes, dtypes or layouts, or if the devices differ.
//
// The cell comes from PyTorch's tutorial on C++ extensions (P. Goldsborough, 2018).
CPPCUDA_EXPORT std::tuple<at::Tensor, at::Tensor, at::Tensor> lltm(const at::Tensor& input, const at::Tensor& weight,
                                                                   const at::Tensor& bias, const at::Tensor& h0,
                                                                   const at::Tensor& c0);

}  // namespace cppcuda
