#include "core/pointwise_cpu_table.h"
#include "ops/sigmoid/math.h"

namespace cppcuda::ops::sigmoid {

[[maybe_unused]] static const bool added =
    core::add_pointwise_cpu<ForwardMath, /*inputs*/ 1>() && core::add_pointwise_cpu<BackwardMath, /*inputs*/ 2>();

}  // namespace cppcuda::ops::sigmoid
