#include "core/pointwise_loop.h"
#include "ops/quick_gelu/math.h"
#include "ops/quick_gelu/schema.h"

namespace cppcuda::ops::quick_gelu {
namespace {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::pointwise<core::DeviceLoop<ForwardMath>, Forward, InPlace, Out>(m);
  core::pointwise<core::DeviceLoop<BackwardMath>, Backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::quick_gelu
