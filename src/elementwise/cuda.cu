#include "core/pointwise_cuda.cuh"
#include "elementwise/family.h"

namespace cppcuda::elementwise {

[[maybe_unused]] static const bool added = core::add_pointwise_cuda(Family());

}  // namespace cppcuda::elementwise
