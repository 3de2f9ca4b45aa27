#pragma once

// The matrix products, computed by ATen. The shapes are those in op.h.

#include "cppcuda/kit/op.h"

namespace cppcuda::ops::lltm_cell {

// [hx, input], [G?, B, S + I]. One product with the concatenation is faster than two products: on 2 cores two products
// took 1.07 to 1.9 times as long for up to 64 rows of 512, and the same time for 256 rows of 1024, where the copy is
// 1/3000 of the work. In 16 bits the sum of two products would also be rounded twice.
Tensor concatenate(const Tensor& hx, const Tensor& input);

// gates = x weight^T + bias.
void affine(const Tensor& gates, const Tensor& x, const Tensor& weight, const Tensor& bias);

// d_weight = d_gates^T x.
void weight_gradient(const Tensor& d_weight, const Tensor& d_gates, const Tensor& x);

// [d_hx, d_input] = d_gates weight. Either may be undefined and is then not computed.
void input_gradients(const Tensor& d_hx, const Tensor& d_input, const Tensor& d_gates, const Tensor& weight);

// d_bias = the sum of d_gates over rows.
void bias_gradient(const Tensor& d_bias, const Tensor& d_gates);

}  // namespace cppcuda::ops::lltm_cell
