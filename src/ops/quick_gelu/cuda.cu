#include "core/pointwise_cuda.cuh"
#include "ops/quick_gelu/math.h"
#include "ops/quick_gelu/schema.h"

namespace cppcuda::ops::quick_gelu {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, core::pointwise<Forward, core::CudaLoop<ForwardMath>>());
  m.impl(InPlace::name, core::pointwise<InPlace, core::CudaLoop<ForwardMath>>());
  m.impl(Out::name, core::pointwise<Out, core::CudaLoop<ForwardMath>>());
  m.impl(Backward::name, core::pointwise<Backward, core::CudaLoop<BackwardMath>>());
}

}  // namespace
}  // namespace cppcuda::ops::quick_gelu
