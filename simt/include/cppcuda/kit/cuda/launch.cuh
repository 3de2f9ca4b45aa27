#pragma once

// Replaces include/cppcuda/kit/cuda/launch.cuh. Launches run in the emulator. All kernels are grid-stride loops.

#include <cstdint>

#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/stream.h"
#include "emulator.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class... Params>
void launch(void (*kernel)(Params...), const LaunchShape& shape, CudaStream&, std::type_identity_t<Params>... params) {
  if (shape.blocks == 0) return;
  simt::launch(kernel,
               {.grid = dim3(shape.blocks),
                .block = dim3(shape.threads),
                .shared_bytes = shape.shared_bytes,
                .grid_stride = true},
               params...);
}

template <class Kernel>
int64_t resident_blocks(Kernel* kernel, unsigned threads, unsigned shared_bytes, const CudaStream&) {
  return simt::resident_blocks(reinterpret_cast<const void*>(kernel), threads, shared_bytes);
}

// The emulator has the instructions of any GPU.
inline int compute_capability(const CudaStream&) { return 1000; }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
