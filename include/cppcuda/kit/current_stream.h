#pragma once

// Converts torch's devices and streams to those of kernels.

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "cppcuda/kit/cuda/stream.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Calls launch(CudaStream&) with the device's current stream. Throws if a launch failed.
template <class Launch>
void on_current_stream(c10::Device device, Launch launch) {
  const c10::DeviceGuard guard(device);
  const auto current = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  CudaStream stream{.device = device.index(), .handle = current.native_handle(), .error = {}};
  launch(stream);
  TORCH_CHECK(stream.error.empty(), "CUDA error: ", stream.error);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
