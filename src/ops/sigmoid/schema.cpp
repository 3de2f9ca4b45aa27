#include "ops/sigmoid/schema.h"

#include <cppcuda/ops/sigmoid.h>

#include "core/check.h"
#include "core/pointwise_define.h"

namespace cppcuda {

Tensor sigmoid(const Tensor& input) {
  core::check_defined("sigmoid", "input", input);
  return ops::sigmoid::Forward::call(input);
}

Tensor& sigmoid_(Tensor& self) {
  core::check_defined("sigmoid_", "self", self);
  ops::sigmoid::InPlace::call(self);
  return self;
}

Tensor& sigmoid_out(Tensor& out, const Tensor& input) {
  core::check_defined("sigmoid", "out", out);
  core::check_defined("sigmoid", "input", input);
  ops::sigmoid::Out::call(input, out);
  return out;
}

namespace ops::sigmoid {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::define_pointwise<Forward>(m, "sigmoid(Tensor input) -> Tensor");
  core::define_pointwise<Backward>(m, "_sigmoid_backward(Tensor grad, Tensor output) -> Tensor");
  core::define_writing<InPlace, Forward>(m, "sigmoid_(Tensor(a!) self) -> ()");
  core::define_writing<Out, Forward>(m, "sigmoid.out(Tensor input, *, Tensor(a!) out) -> ()");
}

}  // namespace ops::sigmoid
}  // namespace cppcuda
