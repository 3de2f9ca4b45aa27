// With k = 1.702 and s = sigmoid(k x):
//
//   out     = x s
//   d input = grad f'(x),  f'(x) = s + k x s (1 - s),  f''(x) = k s (1 - s) (2 + k x (1 - 2 s))
//
// where s (1 - s) goes to 0 before x may become large.

#include <ATen/ops/sigmoid.h>

#include "core/pointwise_autograd.h"
#include "ops/quick_gelu/math.h"
#include "ops/quick_gelu/schema.h"

namespace cppcuda::ops::quick_gelu {
namespace {

Tensor slope_of_slope(const Tensor& x) {
  const Tensor s = at::sigmoid(slope * x), rest = at::sigmoid(-slope * x);  // 1 - s without its loss of digits
  const Tensor both = s * rest;
  return slope * (2 * both + slope * (x * both) * (rest - s));
}

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  core::pointwise_autograd<Forward, Backward, core::Saves::input, slope_of_slope>(m);
}

}  // namespace
}  // namespace cppcuda::ops::quick_gelu
