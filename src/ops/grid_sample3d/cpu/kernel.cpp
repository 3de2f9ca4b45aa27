#include "interpolation/cpu/loops.h"
#include "ops/grid_sample3d/lookup.h"

namespace cppcuda::interpolation {

CPPCUDA_INSTANTIATE_INTERPOLATION(ops::grid_sample3d::Lookup);

}  // namespace cppcuda::interpolation
