#include "ops/upsample_bilinear2d/op.h"

#include <cppcuda/ops/upsample_bilinear2d.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "ops/upsample_bilinear2d/shape.h"

namespace cppcuda {

Tensor upsample_bilinear2d(const Tensor& input, at::IntArrayRef output_size,
                           std::string_view coordinate_transformation_mode, std::optional<double> scale_h,
                           std::optional<double> scale_w) {
  kit::check_defined("upsample_bilinear2d", "input", input);
  return ops::upsample_bilinear2d::Forward::call(input, c10::fromIntArrayRefSlow(output_size),
                                                 coordinate_transformation_mode, scale_h, scale_w);
}

namespace ops::upsample_bilinear2d {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward, forward_shape>(m);
  kit::define<Backward, backward_shape>(m);
}

}  // namespace ops::upsample_bilinear2d
}  // namespace cppcuda
