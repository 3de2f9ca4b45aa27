#include "core/pointwise_cpu.h"
#include "ops/quick_gelu/math.h"
#include "ops/quick_gelu/schema.h"

namespace cppcuda::ops::quick_gelu {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  core::pointwise<core::CpuLoop<ForwardMath>, Forward, InPlace, Out>(m);
  core::pointwise<core::CpuLoop<BackwardMath>, Backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::quick_gelu
