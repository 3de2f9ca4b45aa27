#include "core/pointwise_cuda.cuh"
#include "ops/sigmoid/math.h"
#include "ops/sigmoid/schema.h"

namespace cppcuda::ops::sigmoid {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) {
  m.impl(Forward::name, core::pointwise<Forward, core::CudaLoop<ForwardMath>>());
  m.impl(InPlace::name, core::pointwise<InPlace, core::CudaLoop<ForwardMath>>());
  m.impl(Out::name, core::pointwise<Out, core::CudaLoop<ForwardMath>>());
  m.impl(Backward::name, core::pointwise<Backward, core::CudaLoop<BackwardMath>>());
}

}  // namespace
}  // namespace cppcuda::ops::sigmoid
