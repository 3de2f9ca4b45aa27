#include "core/pointwise_cpu_table.h"
#include "ops/quick_gelu/math.h"

namespace cppcuda::ops::quick_gelu {

[[maybe_unused]] static const bool added =
    core::add_pointwise_cpu<ForwardMath, /*inputs*/ 1>() && core::add_pointwise_cpu<BackwardMath, /*inputs*/ 2>();

}  // namespace cppcuda::ops::quick_gelu
