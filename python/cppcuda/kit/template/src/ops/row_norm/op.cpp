// Defines the operators, and the C++ function row_norm. Change: its arguments.
#include "ops/row_norm/op.h"

#include <my_ops/row_norm.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "ops/row_norm/shape.h"

namespace my_ops {

at::Tensor row_norm(const at::Tensor& input, double eps) {
  cppcuda::kit::check_defined("row_norm", "input", input);
  return ops::row_norm::Forward::call(input, eps);
}

namespace ops::row_norm {

TORCH_LIBRARY_FRAGMENT(my_ops, m) {
  kit::define<Forward>(m);
  kit::define<ForwardWithRstd, shape>(m);
  kit::define<Backward>(m);
}

}  // namespace ops::row_norm
}  // namespace my_ops
