#include "core/pointwise_loop.h"
#include "ops/sigmoid/math.h"
#include "ops/sigmoid/schema.h"

namespace cppcuda::ops::sigmoid {
namespace {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::pointwise<core::DeviceLoop<ForwardMath>, Forward, InPlace, Out>(m);
  core::pointwise<core::DeviceLoop<BackwardMath>, Backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::sigmoid
