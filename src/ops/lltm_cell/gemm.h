#pragma once

// The matrix products, computed by ATen. The shapes are those in op.h.

#include "types.h"

namespace cppcuda::ops::lltm_cell {

// [hx, input], [G?, B, S + I]. One product with the concatenation is faster than two products: on 2 cores two products
// took 1.07 to 1.9 times as long for up to 64 rows of 512, and the same time for 256 rows of 1024, where the copy is
// 1/3000 of the work. In 16 bits the sum of two products would also be rounded twice.
Tensor concatenate(const Tensor& hx, const Tensor& input);

// gates = x weight^T + bias.
void affine(const Tensor& gates, const Tensor& x, const Tensor& weight, const Tensor& bias);

// grad_gates^T x, into grad_weight.
void weight_gradient(const Tensor& grad_weight, const Tensor& grad_gates, const Tensor& x);

// The two parts of grad_gates weight, into those that are defined.
void input_gradients(const Tensor& grad_hx, const Tensor& grad_input, const Tensor& grad_gates, const Tensor& weight);

// The sum over rows, into grad_bias.
void bias_gradient(const Tensor& grad_bias, const Tensor& grad_gates);

}  // namespace cppcuda::ops::lltm_cell
