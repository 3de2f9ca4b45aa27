#include "ops/lltm_cell/schema.h"

#include <cppcuda/ops/lltm_cell.h>

#include "core/check.h"
#include "core/define.h"
#include "ops/lltm_cell/shape.h"

namespace cppcuda {

std::tuple<Tensor, Tensor> lltm_cell(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                     const Tensor& cx) {
  core::check_defined("lltm_cell", "input", input);
  core::check_defined("lltm_cell", "weight", weight);
  core::check_defined("lltm_cell", "bias", bias);
  core::check_defined("lltm_cell", "hx", hx);
  core::check_defined("lltm_cell", "cx", cx);
  return ops::lltm_cell::Forward::call(input, weight, bias, hx, cx);
}

namespace ops::lltm_cell {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::define<Forward, forward_shape>(
      m, "lltm_cell(Tensor input, Tensor weight, Tensor bias, Tensor hx, Tensor cx) -> (Tensor hy, Tensor cy)");
  core::define<Cell, cell_shape>(m,
                                 "_lltm_cell(Tensor input, Tensor weight, Tensor bias, Tensor hx, Tensor cx) -> "
                                 "(Tensor hy, Tensor cy, Tensor gates)");
  core::define<Backward, backward_shape>(
      m,
      "_lltm_cell_backward(Tensor? grad_hy, Tensor? grad_cy, Tensor? grad_gates, Tensor gates, Tensor? input, "
      "Tensor? weight, Tensor? hx, Tensor cx, bool[5] output_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}

}  // namespace ops::lltm_cell
}  // namespace cppcuda
