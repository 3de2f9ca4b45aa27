#pragma once

// Replaces include/cppcuda/kit/cuda/prefetch.cuh.

#include "simt.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

inline void prefetch(const void* address, SimtLine line = SimtLine::current()) {
  simt::check_global("prefetch", address, 1, line);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
