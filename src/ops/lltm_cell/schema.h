#pragma once

#include "core/op.h"

namespace cppcuda::ops::lltm_cell {

using Forward =
    core::Op<"cppcuda::lltm_cell", std::tuple<Tensor, Tensor>(const Tensor& input, const Tensor& weight,
                                                              const Tensor& bias, const Tensor& hx, const Tensor& cx)>;

// With the pre-activations of the gates, which backward reads.
using Cell = core::Op<"cppcuda::_lltm_cell",
                      std::tuple<Tensor, Tensor, Tensor>(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                         const Tensor& hx, const Tensor& cx)>;

// Gradients that are missing are zeros. input and hx are read for the gradient of weight only, weight for those of
// input and hx only; otherwise they may be missing.
using Backward =
    core::Op<"cppcuda::_lltm_cell_backward",
             std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
                 const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const OptionalTensor& grad_gates,
                 const Tensor& gates, const OptionalTensor& input, const OptionalTensor& weight,
                 const OptionalTensor& hx, const Tensor& cx, c10::List<bool> output_mask)>;

}  // namespace cppcuda::ops::lltm_cell
