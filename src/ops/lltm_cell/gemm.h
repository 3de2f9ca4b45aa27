#pragma once

// The matrix products, by ATen. All shapes as in schema.h.

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::lltm_cell {

// [hx, input], [G?, B, S + I], for a product. One product with both is faster than two with one each: on 2 cores the
// two took 1.07 to 1.9 times as long for up to 64 rows of 512, the same for 256 rows of 1024, where the copy is 1/3000
// of the work; and in 16 bits the sum of two products would be rounded twice.
Tensor concatenate(const Tensor& hx, const Tensor& input);

// gates = x weight^T + bias, into gates.
void affine(const Tensor& gates, const Tensor& x, const Tensor& weight, const Tensor& bias);

// grad_gates^T x, into grad_weight.
void weight_gradient(const Tensor& grad_weight, const Tensor& grad_gates, const Tensor& x);

// The two parts of grad_gates weight, into those that are defined.
void input_gradients(const Tensor& grad_hx, const Tensor& grad_input, const Tensor& grad_gates, const Tensor& weight);

// The sum over rows, into grad_bias.
void bias_gradient(const Tensor& grad_bias, const Tensor& grad_gates);

}  // namespace cppcuda::ops::lltm_cell
