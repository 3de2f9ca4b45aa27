#pragma once

// Converts torch's devices and streams to those of kernels.

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include "cppcuda/kit/cuda/stream.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// Calls launch(CudaStream&) with the device's current stream. Throws if a launch failed.
void on_current_stream(c10::Device device, c10::function_ref<void(CudaStream&)> launch);

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
