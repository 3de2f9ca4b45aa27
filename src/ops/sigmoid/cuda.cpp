#include "core/pointwise_cuda.h"
#include "ops/sigmoid/math.h"
#include "ops/sigmoid/schema.h"

namespace cppcuda::ops::sigmoid {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  core::pointwise<core::CudaLoop<ForwardMath>, Forward, InPlace, Out>(m);
  core::pointwise<core::CudaLoop<BackwardMath>, Backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::sigmoid
