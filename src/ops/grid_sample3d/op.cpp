#include "ops/grid_sample3d/op.h"

#include <cppcuda/ops/grid_sample3d.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "ops/grid_sample3d/shape.h"

namespace cppcuda {

Tensor grid_sample3d(const Tensor& input, const Tensor& points, std::string_view padding_mode, bool align_corners) {
  kit::check_defined("grid_sample3d", "input", input);
  kit::check_defined("grid_sample3d", "points", points);
  return ops::grid_sample3d::Forward::call(input, points, padding_mode, align_corners);
}

namespace ops::grid_sample3d {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward, forward_shape>(m);
  kit::define<Backward, backward_shape>(m);
  kit::define<DoubleBackward, double_backward_shape>(m);
}

}  // namespace ops::grid_sample3d
}  // namespace cppcuda
