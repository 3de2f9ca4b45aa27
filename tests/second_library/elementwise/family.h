#pragma once

#include "elementwise/blend.h"
#include "elementwise/cross_entropy.h"
#include "elementwise/gated.h"
#include "elementwise/layer_norm.h"
#include "elementwise/lorentzian.h"
#include "elementwise/normalize.h"
#include "elementwise/project.h"
#include "elementwise/rms_norm.h"
#include "elementwise/rotary.h"
#include "elementwise/rotate.h"
#include "elementwise/softmax.h"
#include "elementwise/softplus.h"
#include "elementwise/swish.h"
#include "elementwise/tanhshrink.h"

namespace second {

// The elementwise operators of this library.
using Family = kit::Family<Blend, CrossEntropy, Gated, LayerNorm, Lorentzian, Normalize, Project, RmsNorm, Rotary,
                           Rotate, Softmax, Softplus, Swish, Tanhshrink>;

}  // namespace second
