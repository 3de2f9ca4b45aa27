#include "ops/trilinear/schema.h"

#include <cppcuda/ops/trilinear.h>

#include "core/check.h"
#include "core/define.h"

namespace cppcuda {

Tensor trilinear(const Tensor& feats, const Tensor& points) {
  core::check_defined("trilinear", "feats", feats);
  core::check_defined("trilinear", "points", points);
  return ops::trilinear::Forward::call(feats, points);
}

namespace ops::trilinear {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::define<Forward>(m);
  core::define<Backward>(m);
}

}  // namespace ops::trilinear
}  // namespace cppcuda
