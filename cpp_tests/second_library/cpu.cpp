#include "core/pointwise_cpu_table.h"
#include "family.h"

namespace second {

[[maybe_unused]] static const bool added = core::add_pointwise_cpu(Family());

}  // namespace second
