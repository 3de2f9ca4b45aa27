#include "core/pointwise_cuda.cuh"
#include "elementwise/family.h"

namespace cppcuda {

template void core::instantiate_pointwise_cuda(elementwise::Family);

}  // namespace cppcuda
