// The launch code for GPUs, which the emulator replaces, with a mock of CUDA's runtime that has two devices.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cppcuda/kit/cuda/launch.cuh"

namespace {

namespace kit = cppcuda::kit;

struct Params {
  double factor;
  int counts[3];
};

void kernel(float*, Params, int64_t) {}

struct Launched {
  int device;
  const void* kernel;
  dim3 blocks, threads;
  size_t shared_bytes;
  cudaStream_t stream;
  float* memory;  // the arguments of `kernel`
  Params params;
  int64_t size;
};

// The state of the runtime, and what it was asked for.
struct Runtime {
  int device = 0, calls = 0, device_changes = 0;
  cudaError_t last_error = cudaSuccess;
  std::vector<Launched> launched;
  std::vector<int> occupancy_devices;
  // The results of the next calls.
  cudaError_t get_device = cudaSuccess, set_device = cudaSuccess, launch = cudaSuccess, occupancy = cudaSuccess;

  cudaError_t result(cudaError_t error) {
    ++calls;
    if (error != cudaSuccess) last_error = error;
    return error;
  }
};

Runtime runtime;

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = runtime.device;
  return runtime.result(runtime.get_device);
}

cudaError_t cudaSetDevice(int device) {
  ++runtime.device_changes;
  if (runtime.set_device == cudaSuccess) runtime.device = device;
  return runtime.result(runtime.set_device);
}

cudaError_t cudaLaunchKernel(const void* func, dim3 blocks, dim3 threads, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  runtime.launched.push_back({runtime.device, func, blocks, threads, shared_bytes, stream,
                              *static_cast<float**>(arguments[0]), *static_cast<Params*>(arguments[1]),
                              *static_cast<int64_t*>(arguments[2])});
  return runtime.result(runtime.launch);
}

cudaError_t cudaGetLastError() {
  ++runtime.calls;
  return std::exchange(runtime.last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "invalid configuration" : "another error";
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 12080;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                   size_t shared_bytes, unsigned) {
  runtime.occupancy_devices.push_back(runtime.device);
  if (runtime.occupancy == cudaSuccess) *blocks = threads == 128 && shared_bytes == 1024 ? 3 : 5;
  return runtime.result(runtime.occupancy);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (attribute == cudaDevAttrMultiProcessorCount) *value = device == 0 ? 10 : 100;
  if (attribute == cudaDevAttrComputeCapabilityMajor) *value = device == 0 ? 8 : 12;
  if (attribute == cudaDevAttrComputeCapabilityMinor) *value = device == 0 ? 6 : 1;
  return runtime.result(cudaSuccess);
}

}  // extern "C"

namespace {

class Launch : public ::testing::Test {
 protected:
  Launch() { runtime = {}; }

  void launch(const kit::LaunchShape& shape = {.blocks = 7, .threads = 128, .shared_bytes = 1024}) {
    kit::launch(kernel, shape, stream, memory, {0.5, {1, 2, 3}}, int64_t{1} << 40);
  }

  float memory[1];
  int handle;
  kit::CudaStream stream{.device = 1, .handle = &handle, .error = ""};
};

TEST_F(Launch, RunsOnTheDeviceOfTheStream) {
  launch();
  ASSERT_EQ(runtime.launched.size(), 1u);
  EXPECT_EQ(runtime.launched[0].device, 1);
  EXPECT_EQ(runtime.device, 0);
  EXPECT_EQ(stream.error, "");
}

TEST_F(Launch, PassesShapeStreamAndParameters) {
  launch();
  ASSERT_EQ(runtime.launched.size(), 1u);
  const Launched& l = runtime.launched[0];
  EXPECT_EQ(l.kernel, reinterpret_cast<const void*>(kernel));
  EXPECT_EQ(l.blocks.x, 7u);
  EXPECT_EQ(l.blocks.y * l.blocks.z, 1u);
  EXPECT_EQ(l.threads.x, 128u);
  EXPECT_EQ(l.threads.y * l.threads.z, 1u);
  EXPECT_EQ(l.shared_bytes, 1024u);
  EXPECT_EQ(l.stream, static_cast<void*>(&handle));
  EXPECT_EQ(l.memory, memory);
  EXPECT_EQ(l.params.factor, 0.5);
  EXPECT_EQ(l.params.counts[2], 3);
  EXPECT_EQ(l.size, int64_t{1} << 40);
}

TEST_F(Launch, ChangesNoDeviceThatIsCurrent) {
  runtime.device = 1;
  launch();
  EXPECT_EQ(runtime.launched.size(), 1u);
  EXPECT_EQ(runtime.device_changes, 0);
}

TEST_F(Launch, AnEmptyGridCallsNothing) {
  launch({.blocks = 0, .threads = 128});
  EXPECT_EQ(runtime.calls, 0);
}

TEST_F(Launch, KeepsTheFirstError) {
  runtime.launch = cudaErrorInvalidConfiguration;
  launch();
  EXPECT_EQ(stream.error, "invalid configuration");
  EXPECT_EQ(runtime.device, 0);
  runtime.launch = cudaErrorInvalidValue;
  launch();
  EXPECT_EQ(stream.error, "invalid configuration");
  EXPECT_EQ(runtime.last_error, cudaSuccess);
}

// An error that was not read would be the error of the next launch.
TEST_F(Launch, WithoutItsDeviceLaunchesNothing) {
  runtime.set_device = cudaErrorInvalidConfiguration;
  launch();
  EXPECT_TRUE(runtime.launched.empty());
  EXPECT_EQ(stream.error, "invalid configuration");
  EXPECT_EQ(runtime.device_changes, 1);
  EXPECT_EQ(runtime.last_error, cudaSuccess);
}

TEST_F(Launch, AnOldDriverIsNamed) {
  runtime.get_device = cudaErrorInsufficientDriver;
  launch();
  EXPECT_TRUE(runtime.launched.empty());
  EXPECT_EQ(runtime.device_changes, 0);
  EXPECT_EQ(stream.error, kit::driver_error(12080, 13000));
}

TEST_F(Launch, ResidentBlocksAreThoseOfTheStreamsDevice) {
  EXPECT_EQ(kit::resident_blocks(kernel, 128, 1024, stream), 300);
  EXPECT_EQ(runtime.device, 0);
  EXPECT_EQ(kit::resident_blocks(kernel, 128, 1024, stream), 300);
  EXPECT_EQ(runtime.occupancy_devices, std::vector{1});
  stream.device = 0;
  EXPECT_EQ(kit::resident_blocks(kernel, 128, 1024, stream), 30);
  EXPECT_EQ(runtime.occupancy_devices, (std::vector{1, 0}));
  EXPECT_EQ(kit::resident_blocks(kernel, 256, 1024, stream), 50);
}

TEST_F(Launch, ReportsTheErrorOfResidentBlocks) {
  runtime.occupancy = cudaErrorInvalidConfiguration;
  EXPECT_EQ(kit::resident_blocks(kernel, 64, 0, stream), 1);
  EXPECT_EQ(runtime.device, 0);
  launch();
  EXPECT_EQ(stream.error, "invalid configuration");
  runtime.occupancy = cudaSuccess;
  EXPECT_EQ(kit::resident_blocks(kernel, 64, 0, stream), 500);
}

TEST_F(Launch, ComputeCapabilityIsThatOfTheStreamsDevice) {
  EXPECT_EQ(kit::compute_capability(stream), 121);
  stream.device = 0;
  EXPECT_EQ(kit::compute_capability(stream), 86);
}

}  // namespace
