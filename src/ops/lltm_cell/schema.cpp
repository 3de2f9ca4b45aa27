#include "ops/lltm_cell/schema.h"

#include <cppcuda/ops/lltm_cell.h>

#include "core/check.h"
#include "core/define.h"

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
  core::define<Forward>(m);
  core::define<Cell>(m);
  core::define<Backward>(m);
}

}  // namespace ops::lltm_cell
}  // namespace cppcuda
