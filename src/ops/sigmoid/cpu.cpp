#include "core/pointwise_cpu.h"
#include "ops/sigmoid/math.h"
#include "ops/sigmoid/schema.h"

namespace cppcuda::ops::sigmoid {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  core::pointwise<core::CpuLoop<ForwardMath>, Forward, InPlace, Out>(m);
  core::pointwise<core::CpuLoop<BackwardMath>, Backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::sigmoid
