#pragma once

#include "elementwise/gated.h"
#include "elementwise/swish.h"
#include "elementwise/tanhshrink.h"

namespace second {

// The elementwise operators of this library.
using Family = kit::Family<Gated, Swish, Tanhshrink>;

}  // namespace second
