#include "cppcuda/kit/elementwise/cpu_table.h"
#include "elementwise/family.h"

namespace second {

[[maybe_unused]] static const bool added = kit::add_elementwise_cpu(Family());

}  // namespace second
