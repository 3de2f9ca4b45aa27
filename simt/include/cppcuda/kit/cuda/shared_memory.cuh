#pragma once

// Replaces include/cppcuda/kit/cuda/shared_memory.cuh. The memory is on the heap, so that its bounds are checked.

#include "emulator.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class T>
T* shared_memory() {
  return static_cast<T*>(simt::shared_memory());
}

template <class T>
T* warp_memory(int count) {
  return shared_memory<T>() + threadIdx.x / 32 * count;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
