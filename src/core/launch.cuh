#pragma once

// The one way to launch a kernel: on the device of its tensors, on the current stream, checked.

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "core/launch_shape.h"

namespace cppcuda::core {

// No blocks: nothing to do.
template <class... Params>
void launch(void (*kernel)(Params...), const LaunchShape& shape, c10::Device device, Params... params) {
  if (shape.blocks == 0) return;
  const c10::cuda::CUDAGuard guard(device);
  kernel<<<shape.blocks, shape.threads, shape.shared_bytes, c10::cuda::getCurrentCUDAStream()>>>(params...);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace cppcuda::core
