#include "ops/trilinear/op.h"

#include <cppcuda/ops/trilinear.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"

namespace cppcuda {

Tensor trilinear(const Tensor& feats, const Tensor& points) {
  kit::check_defined("trilinear", "feats", feats);
  kit::check_defined("trilinear", "points", points);
  return ops::trilinear::Forward::call(feats, points);
}

namespace ops::trilinear {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward>(m);
  kit::define<Backward>(m);
  kit::define<DoubleBackward>(m);
}

}  // namespace ops::trilinear
}  // namespace cppcuda
