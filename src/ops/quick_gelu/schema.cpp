#include "ops/quick_gelu/schema.h"

#include <cppcuda/ops/quick_gelu.h>

#include "core/check.h"
#include "core/pointwise_define.h"

namespace cppcuda {

Tensor quick_gelu(const Tensor& input) {
  core::check_defined("quick_gelu", "input", input);
  return ops::quick_gelu::Forward::call(input);
}

Tensor& quick_gelu_(Tensor& self) {
  core::check_defined("quick_gelu_", "self", self);
  ops::quick_gelu::InPlace::call(self);
  return self;
}

Tensor& quick_gelu_out(Tensor& out, const Tensor& input) {
  core::check_defined("quick_gelu", "out", out);
  core::check_defined("quick_gelu", "input", input);
  ops::quick_gelu::Out::call(input, out);
  return out;
}

namespace ops::quick_gelu {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::define_pointwise<Forward>(m, "quick_gelu(Tensor input) -> Tensor");
  core::define_pointwise<Backward>(m, "_quick_gelu_backward(Tensor grad, Tensor input) -> Tensor");
  core::define_writing<InPlace, Forward>(m, "quick_gelu_(Tensor(a!) self) -> ()");
  core::define_writing<Out, Forward>(m, "quick_gelu.out(Tensor input, *, Tensor(a!) out) -> ()");
}

}  // namespace ops::quick_gelu
}  // namespace cppcuda
