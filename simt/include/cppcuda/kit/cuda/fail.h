#pragma once

// Replaces include/cppcuda/kit/cuda/fail.h.

#include "emulator.h"

#define CPPCUDA_DEVICE_CODE

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

inline void fail_on_device(const char* where, const char* message) { simt::fail(where, message); }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
