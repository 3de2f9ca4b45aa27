#pragma once

// All kernels are launched here.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
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

// Makes a device the current one of this library's CUDA runtime, which is not torch's, for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : device_(device) {
    error = cudaGetDevice(&previous_);
    if (error == cudaSuccess && previous_ != device) error = cudaSetDevice(device);
  }
  ~DeviceScope() {
    if (error == cudaSuccess && previous_ != device_) cudaSetDevice(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  cudaError_t error;

 private:
  int device_, previous_ = 0;
};

// Calls f(cudaStream_t), which returns a cudaError_t, with the stream's device as the current one.
template <class F>
void on_stream(CudaStream& stream, F f) {
  const DeviceScope scope(stream.device);
  cudaError_t error = scope.error;
  if (error == cudaSuccess) error = f(static_cast<cudaStream_t>(stream.handle));
  const cudaError_t last = cudaGetLastError();  // also of calls before this one
  if (error == cudaSuccess) error = last;
  if (error != cudaSuccess && stream.error.empty()) stream.error = error_text(error);
}

// A grid without blocks launches nothing. This is not <<<...>>>, so that a C++ compiler takes it, too: a test runs it
// with a mock of CUDA's runtime.
template <class... Params>
void launch(void (*kernel)(Params...), const LaunchShape& shape, CudaStream& stream,
            std::type_identity_t<Params>... params) {
  // More would need CUDA 12.1 and a driver as new. Each parameter is aligned to 8 bytes at most.
  static_assert((((sizeof(Params) + 7) / 8 * 8) + ... + 0) <= 4096,
                "the parameters of a kernel take at most 4096 bytes");
  if (shape.blocks == 0) return;
  on_stream(stream, [&](cudaStream_t handle) {
    void* arguments[] = {&params...};
    return cudaLaunchKernel(kernel, shape.blocks, shape.threads, arguments, shape.shared_bytes, handle);
  });
}

// The number of blocks of a kernel that the stream's device holds at once. CUDA is asked once for each kernel and
// device.
template <class Kernel>
int64_t resident_blocks(Kernel* kernel, unsigned threads, unsigned shared_bytes, const CudaStream& stream) {
  thread_local std::map<std::tuple<const void*, int, unsigned, unsigned>, int64_t> known;
  const std::tuple key{reinterpret_cast<const void*>(kernel), stream.device, threads, shared_bytes};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const DeviceScope scope(stream.device);
  int blocks = 0, multiprocessors = 0;
  if (scope.error != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), shared_bytes) !=
          cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, stream.device) != cudaSuccess) {
    return 1;  // any number will do, because the launch reports the error
  }
  return known[key] = std::max(1, blocks * multiprocessors);
}

// The compute capability of the stream's device, 90 for 9.0. It is 0 after an error, which the launch reports.
inline int compute_capability(const CudaStream& stream) {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, stream.device);
  return 10 * major + minor;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
