#include "interpolation/cpu/loops.h"
#include "ops/hash_grid/lookup.h"

namespace cppcuda::interpolation {

CPPCUDA_INSTANTIATE_INTERPOLATION(ops::hash_grid::Lookup<2>);
CPPCUDA_INSTANTIATE_INTERPOLATION(ops::hash_grid::Lookup<3>);
CPPCUDA_INSTANTIATE_INTERPOLATION(ops::hash_grid::Lookup<4>);

}  // namespace cppcuda::interpolation
