#include "ops/lltm_cell/gemm.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

namespace cppcuda::ops::lltm_cell {
namespace {

// Whether all groups share one matrix, as under a vmap that does not batch it.
bool is_shared(const Tensor& t) { return t.stride(0) == 0 || t.size(0) == 1; }

// [G, B, N] -> [G B, N]
Tensor fold(const Tensor& t) { return t.flatten(0, 1); }

// out = a b, where b is [K, N] or [G, K, N].
void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b) {
  Tensor result = out;
  if (a.dim() == 2) {
    at::mm_out(result, a, b);
  } else if (is_shared(b)) {
    result = fold(out);
    at::mm_out(result, fold(a), b[0]);
  } else {
    at::bmm_out(result, a, b);
  }
}

}  // namespace

Tensor concatenate(const Tensor& hx, const Tensor& input) {
  if (hx.dim() == 3 && is_shared(hx) && is_shared(input)) {
    return at::cat({hx[0], input[0]}, -1).unsqueeze(0).expand({hx.size(0), -1, -1});
  }
  return at::cat({hx, input}, -1);
}

void affine(const Tensor& gates, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor result = gates;
  if (gates.dim() == 2) {
    at::addmm_out(result, bias, x, weight.t());
  } else if (is_shared(weight) && is_shared(bias)) {
    result = fold(gates);
    at::addmm_out(result, bias[0], fold(x), weight[0].t());
  } else {
    at::baddbmm_out(result, bias.unsqueeze(1), x, weight.transpose(1, 2));
  }
}

void weight_gradient(const Tensor& grad_weight, const Tensor& grad_gates, const Tensor& x) {
  Tensor result = grad_weight;
  if (grad_gates.dim() == 2) {
    at::mm_out(result, grad_gates.t(), x);
  } else {
    at::bmm_out(result, grad_gates.transpose(1, 2), x);
  }
}

void input_gradients(const Tensor& grad_hx, const Tensor& grad_input, const Tensor& grad_gates, const Tensor& weight) {
  const int64_t size = grad_gates.size(-1) / 3;
  if (!grad_input.defined()) return matmul_into(grad_hx, grad_gates, weight.narrow(-1, 0, size));
  if (!grad_hx.defined()) return matmul_into(grad_input, grad_gates, weight.narrow(-1, size, weight.size(-1) - size));
  // One product and two copies take less time than two products.
  auto sizes = grad_hx.sizes().vec();
  sizes.back() = weight.size(-1);
  const Tensor both = at::empty(sizes, grad_hx.options());
  matmul_into(both, grad_gates, weight);
  grad_hx.copy_(both.narrow(-1, 0, size));
  grad_input.copy_(both.narrow(-1, size, weight.size(-1) - size));
}

void bias_gradient(const Tensor& grad_bias, const Tensor& grad_gates) {
  Tensor result = grad_bias;
  at::sum_out(result, grad_gates, -2);
}

}  // namespace cppcuda::ops::lltm_cell
