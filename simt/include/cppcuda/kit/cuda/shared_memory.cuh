#pragma once

// Replaces include/cppcuda/kit/cuda/shared_memory.cuh. The memory is on the heap, so that its bounds are checked.

#include "emulator.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class T>
T* shared_memory(simt::Line line = simt::Line::current()) {
  return static_cast<T*>(simt::shared_memory(line));
}

template <class T>
T* warp_memory(int count, simt::Line line = simt::Line::current()) {
  return static_cast<T*>(simt::warp_memory(count * sizeof(T), line));
}

template <class T>
void forget(T* memory, int count) {
  simt::forget(memory, count * sizeof(T));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
