#include "cppcuda/kit/autocast.h"

#include "cppcuda/kit/dtype.h"
#include "ops/grid_sample3d/op.h"

namespace cppcuda::ops::grid_sample3d {
namespace {

// As for trilinear: input keeps its dtype, and 16-bit points become float32.
std::tuple<Tensor, Tensor, std::string_view, bool> cast(at::ScalarType, const Tensor& input, const Tensor& points,
                                                        std::string_view padding_mode, bool align_corners) {
  return {input, kit::is_16bit(points.scalar_type()) ? points.to(at::kFloat) : points, padding_mode, align_corners};
}

TORCH_LIBRARY_IMPL(cppcuda, AutocastCPU, m) { m.impl(Forward::name, kit::autocast<Forward, cast, at::kCPU>()); }
TORCH_LIBRARY_IMPL(cppcuda, AutocastCUDA, m) { m.impl(Forward::name, kit::autocast<Forward, cast, at::kCUDA>()); }

}  // namespace
}  // namespace cppcuda::ops::grid_sample3d
