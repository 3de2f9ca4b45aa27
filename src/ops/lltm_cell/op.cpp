#include "ops/lltm_cell/op.h"

#include <cppcuda/ops/lltm.h>
#include <cppcuda/ops/lltm_cell.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"

namespace cppcuda {

std::tuple<Tensor, Tensor> lltm_cell(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                                     const Tensor& cx) {
  kit::check_defined("lltm_cell", "input", input);
  kit::check_defined("lltm_cell", "weight", weight);
  kit::check_defined("lltm_cell", "bias", bias);
  kit::check_defined("lltm_cell", "hx", hx);
  kit::check_defined("lltm_cell", "cx", cx);
  return ops::lltm_cell::Forward::call(input, weight, bias, hx, cx);
}

std::tuple<Tensor, Tensor, Tensor> lltm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& h0,
                                        const Tensor& c0) {
  kit::check_defined("lltm", "input", input);
  kit::check_defined("lltm", "weight", weight);
  kit::check_defined("lltm", "bias", bias);
  kit::check_defined("lltm", "h0", h0);
  kit::check_defined("lltm", "c0", c0);
  return ops::lltm_cell::Sequence::call(input, weight, bias, h0, c0);
}

namespace ops::lltm_cell {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward>(m);
  kit::define<Cell>(m);
  kit::define<Backward>(m);
  kit::define<Sequence>(m);
  kit::define<Steps>(m);
  kit::define<StepsBackward>(m);
}

}  // namespace ops::lltm_cell
}  // namespace cppcuda
