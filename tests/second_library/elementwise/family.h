#pragma once

#include "gated.h"
#include "swish.h"
#include "tanhshrink.h"

namespace second {

// The elementwise operators of this library.
using Family = kit::Family<Gated, Swish, Tanhshrink>;

}  // namespace second
