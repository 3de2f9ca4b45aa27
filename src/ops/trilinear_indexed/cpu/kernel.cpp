#include "interpolation/cpu/loops.h"
#include "ops/trilinear_indexed/cpu/read_rows.h"

namespace cppcuda::interpolation {

CPPCUDA_INSTANTIATE_INTERPOLATION(ops::trilinear_indexed::Lookup<int32_t>);
CPPCUDA_INSTANTIATE_INTERPOLATION(ops::trilinear_indexed::Lookup<int64_t>);

}  // namespace cppcuda::interpolation
