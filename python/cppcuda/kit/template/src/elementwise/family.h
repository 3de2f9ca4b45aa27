// The elementwise operators of this library. Change: nothing; `python -m cppcuda.kit add` adds lines.
#pragma once

#include "cppcuda/kit/elementwise/math.h"
#include "elementwise/swish.h"

namespace my_ops {

using Family = cppcuda::kit::Family<Swish>;

}  // namespace my_ops
