#pragma once

// The types in the signatures of cppcuda's functions. The kit has them in its own namespace only, so that it gives no
// names to other libraries.

#include "cppcuda/kit/op.h"

namespace cppcuda {

using kit::OptionalTensor;
using kit::Tensor;

}  // namespace cppcuda
