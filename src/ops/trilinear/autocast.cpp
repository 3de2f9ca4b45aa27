#include "cppcuda/kit/autocast.h"

#include "cppcuda/kit/dtype.h"
#include "ops/trilinear/op.h"

namespace cppcuda::ops::trilinear {
namespace {

// The operator is memory-bound, so feats keep their dtype. 16-bit points become float32, which is valid with every
// dtype of feats under autocast.
std::tuple<Tensor, Tensor> cast(at::ScalarType, const Tensor& feats, const Tensor& points) {
  return {feats, kit::is_16bit(points.scalar_type()) ? points.to(at::kFloat) : points};
}

TORCH_LIBRARY_IMPL(cppcuda, AutocastCPU, m) { m.impl(Forward::name, kit::autocast<Forward, cast, at::kCPU>()); }
TORCH_LIBRARY_IMPL(cppcuda, AutocastCUDA, m) { m.impl(Forward::name, kit::autocast<Forward, cast, at::kCUDA>()); }

}  // namespace
}  // namespace cppcuda::ops::trilinear
