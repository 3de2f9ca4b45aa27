#pragma once

#include "elementwise/blend.h"
#include "elementwise/gated.h"
#include "elementwise/lorentzian.h"
#include "elementwise/softplus.h"
#include "elementwise/swish.h"
#include "elementwise/tanhshrink.h"

namespace second {

// The elementwise operators of this library.
using Family = kit::Family<Blend, Gated, Lorentzian, Softplus, Swish, Tanhshrink>;

}  // namespace second
