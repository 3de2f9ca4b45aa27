#pragma once

// All kernels are launched here.

#include <string>
#include <type_traits>

#include "cppcuda/kit/cuda/driver_error.h"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/stream.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

inline std::string error_text(cudaError_t error) {
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  return driver_error(driver, runtime);
}

// A grid without blocks launches nothing.
template <class... Params>
void launch(void (*kernel)(Params...), const LaunchShape& shape, CudaStream& stream,
            std::type_identity_t<Params>... params) {
  if (shape.blocks == 0) return;
  // This library links its own CUDA runtime, which has its own current device.
  int previous = 0;
  cudaError_t error = cudaGetDevice(&previous);
  if (error == cudaSuccess && previous != stream.device) error = cudaSetDevice(stream.device);
  if (error == cudaSuccess) {
    kernel<<<shape.blocks, shape.threads, shape.shared_bytes, static_cast<cudaStream_t>(stream.handle)>>>(params...);
    error = cudaGetLastError();
    if (previous != stream.device) cudaSetDevice(previous);
  }
  if (error != cudaSuccess && stream.error.empty()) stream.error = error_text(error);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
