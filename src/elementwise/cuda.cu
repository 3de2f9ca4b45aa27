#include "cppcuda/kit/elementwise/cuda.cuh"
#include "elementwise/family.h"

namespace cppcuda::elementwise {

[[maybe_unused]] static const bool added = kit::add_elementwise_cuda(Family());

}  // namespace cppcuda::elementwise
