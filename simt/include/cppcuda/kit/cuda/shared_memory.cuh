#pragma once

// Stands for include/cppcuda/kit/cuda/shared_memory.cuh: on the heap, so that its bounds are known.

#include "emulator.h"

namespace cppcuda::kit {

template <class T>
T* shared_memory() {
  return static_cast<T*>(simt::shared_memory());
}

}  // namespace cppcuda::kit
