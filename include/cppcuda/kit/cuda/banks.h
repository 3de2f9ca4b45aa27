#pragma once

#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The index of element i in a padded array in shared memory: one element of padding per 128 bytes avoids bank conflicts
// for strides of 2, 4 and 8.
CPPCUDA_HOST_DEVICE constexpr int padded(int i, int bytes) { return i + i / (128 / bytes); }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
