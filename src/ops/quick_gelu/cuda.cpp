#include "core/pointwise_cuda.h"
#include "ops/quick_gelu/math.h"
#include "ops/quick_gelu/schema.h"

namespace cppcuda::ops::quick_gelu {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  core::pointwise<core::CudaLoop<ForwardMath>, Forward, InPlace, Out>(m);
  core::pointwise<core::CudaLoop<BackwardMath>, Backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::quick_gelu
