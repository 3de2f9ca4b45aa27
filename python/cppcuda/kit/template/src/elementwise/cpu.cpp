// The table of the CPU kernels. Change: nothing.
#include "cppcuda/kit/elementwise/cpu_table.h"
#include "elementwise/family.h"

namespace my_ops {

[[maybe_unused]] static const bool added = cppcuda::kit::add_elementwise_cpu(Family());

}  // namespace my_ops
