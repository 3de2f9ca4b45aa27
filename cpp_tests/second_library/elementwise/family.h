#pragma once

#include "gated.h"
#include "swish.h"

namespace second {

// The elementwise operators of this library.
using Family = kit::Family<Gated, Swish>;

}  // namespace second
