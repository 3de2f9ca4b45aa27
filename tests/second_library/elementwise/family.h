#pragma once

#include "elementwise/blend.h"
#include "elementwise/gated.h"
#include "elementwise/lorentzian.h"
#include "elementwise/normalize.h"
#include "elementwise/project.h"
#include "elementwise/rotate.h"
#include "elementwise/softplus.h"
#include "elementwise/swish.h"
#include "elementwise/tanhshrink.h"

namespace second {

// The elementwise operators of this library.
using Family = kit::Family<Blend, Gated, Lorentzian, Normalize, Project, Rotate, Softplus, Swish, Tanhshrink>;

}  // namespace second
