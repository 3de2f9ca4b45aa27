#pragma once

// The LLTM in plain torch.

#include <ATen/ATen.h>

#include <tuple>
#include <utility>
#include <vector>

namespace cppcuda::testing {

// [hx, input] weight^T + bias
inline at::Tensor reference_gates(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                  const at::Tensor& hx) {
  return at::matmul(at::cat({hx, input}, -1), weight.transpose(-1, -2)) + bias.unsqueeze(-2);
}

// hy, cy
inline std::pair<at::Tensor, at::Tensor> reference_cell(const at::Tensor& gates, const at::Tensor& cx) {
  const auto g = gates.chunk(3, -1);
  const at::Tensor cy = cx + at::elu(g[2]) * at::sigmoid(g[0]);
  return {at::tanh(cy) * at::sigmoid(g[1]), cy};
}

// output, hn, cn, cells, gates, from input, weight, bias, h0, c0
inline std::vector<at::Tensor> reference_sequence(const std::vector<at::Tensor>& a) {
  at::Tensor h = a[3], c = a[4];
  std::vector<at::Tensor> output, cells, gates;
  for (const at::Tensor& x : a[0].unbind(-3)) {
    gates.push_back(reference_gates(x, a[1], a[2], h));
    std::tie(h, c) = reference_cell(gates.back(), c);
    output.push_back(h);
    cells.push_back(c);
  }
  return {at::stack(output, -3), h, c, at::stack(cells, -3), at::stack(gates, -3)};
}

}  // namespace cppcuda::testing
