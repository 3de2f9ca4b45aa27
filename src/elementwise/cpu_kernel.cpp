#include "core/pointwise_cpu_loop.h"
#include "elementwise/family.h"

namespace cppcuda {

template void core::instantiate_pointwise<core::Isa>(elementwise::Family);

}  // namespace cppcuda
