#pragma once

#include "elementwise/quick_gelu.h"
#include "elementwise/sigmoid.h"

namespace cppcuda::elementwise {

// The elementwise operators of this library.
using Family = kit::Family<QuickGelu, Sigmoid>;

}  // namespace cppcuda::elementwise
