#pragma once

// Replaces include/cppcuda/kit/cuda/global_memory.cuh.

#include "simt.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class T>
T* base_address(T* address) {
  return address;
}

inline void store16(void* to, uint4 value, SimtLine line = SimtLine::current()) {
  simt::check_global("store16", to, sizeof(uint4), line);
  *static_cast<uint4*>(to) = value;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
