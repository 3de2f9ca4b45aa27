#include "core/pointwise_cpu_loop.h"
#include "family.h"

namespace cppcuda {

template void core::instantiate_pointwise<core::Isa>(second::Family);

}  // namespace cppcuda
