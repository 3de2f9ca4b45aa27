#include "ops/trilinear/schema.h"

#include <cppcuda/ops/trilinear.h>

#include "core/check.h"
#include "core/define.h"
#include "ops/trilinear/shape.h"

namespace cppcuda {

Tensor trilinear(const Tensor& feats, const Tensor& points) {
  core::check_defined("trilinear", "feats", feats);
  core::check_defined("trilinear", "points", points);
  return ops::trilinear::Forward::call(feats, points);
}

namespace ops::trilinear {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::define<Forward, forward_shape>(m, "trilinear(Tensor feats, Tensor points) -> Tensor");
  core::define<Backward, backward_shape>(m,
                                         "_trilinear_backward(Tensor grad, Tensor? feats, Tensor "
                                         "points, bool[2] output_mask) -> (Tensor, Tensor)");
}

}  // namespace ops::trilinear
}  // namespace cppcuda
