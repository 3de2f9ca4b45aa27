#include "cppcuda/kit/autocast.h"

#include "cppcuda/kit/dtype.h"
#include "ops/trilinear_indexed/op.h"

namespace cppcuda::ops::trilinear_indexed {
namespace {

// As for trilinear: table keeps its dtype, and 16-bit points become float32.
std::tuple<Tensor, Tensor, Tensor> cast(at::ScalarType, const Tensor& table, const Tensor& corners,
                                        const Tensor& points) {
  return {table, corners, kit::is_16bit(points.scalar_type()) ? points.to(at::kFloat) : points};
}

template <at::DeviceType Device>
void implement(torch::Library& library) {
  library.impl(Forward::name, kit::autocast<Forward, cast, Device>());
  library.impl(WithGrad::name, kit::autocast<WithGrad, cast, Device>());
}

TORCH_LIBRARY_IMPL(cppcuda, AutocastCPU, m) { implement<at::kCPU>(m); }
TORCH_LIBRARY_IMPL(cppcuda, AutocastCUDA, m) { implement<at::kCUDA>(m); }

}  // namespace
}  // namespace cppcuda::ops::trilinear_indexed
