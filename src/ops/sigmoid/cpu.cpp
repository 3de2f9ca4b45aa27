#include "core/pointwise_cpu.h"
#include "ops/sigmoid/math.h"
#include "ops/sigmoid/schema.h"

namespace cppcuda::ops::sigmoid {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  m.impl(Forward::name, core::pointwise<Forward, core::CpuLoop<ForwardMath>>());
  m.impl(InPlace::name, core::pointwise<InPlace, core::CpuLoop<ForwardMath>>());
  m.impl(Out::name, core::pointwise<Out, core::CpuLoop<ForwardMath>>());
  m.impl(Backward::name, core::pointwise<Backward, core::CpuLoop<BackwardMath>>());
}

}  // namespace
}  // namespace cppcuda::ops::sigmoid
