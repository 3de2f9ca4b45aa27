// Checks the counts of traffic.h for accesses whose cost is known.

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "emulator.h"
#include "traffic.h"

namespace {

using namespace cppcuda;

template <class T>
__global__ void through_shared_kernel(const T* from, T* to, int step) {
  T* shared = kit::shared_memory<T>();
  shared[threadIdx.x * step] = from[threadIdx.x * step];
  __syncthreads();
  to[threadIdx.x] = shared[threadIdx.x * step];
}

template <class T>
__global__ void through_slice_kernel(const T* from, T* to, int step) {
  T* slice = kit::warp_memory<T>(31 * step + 1);
  slice[threadIdx.x * step] = from[threadIdx.x * step];
  __syncwarp();
  to[threadIdx.x] = slice[threadIdx.x * step];
}

template <class T>
simt::Traffic traffic_of(int step, void (*kernel)(const T*, T*, int) = through_shared_kernel<T>) {
  const size_t bytes = sizeof(T) * (31 * step + 1);
  T *from = static_cast<T*>(simt::allocate(bytes)), *to = static_cast<T*>(simt::allocate(32 * sizeof(T)));
  const auto traffic = simt::traffic_of(
      [&] { simt::launch(kernel, {.grid = dim3(1), .block = dim3(32), .shared_bytes = bytes}, from, to, step); });
  simt::release(from);
  simt::release(to);
  return traffic;
}

TEST(TrafficCount, OfSteps) {
  struct Case {
    int step, lines, wavefronts;  // of a load and a store
  };
  for (const auto& [step, lines, wavefronts] :
       {Case{1, 2, 2}, {2, 3, 4}, {3, 4, 2}, {4, 5, 8}, {8, 9, 16}, {32, 33, 64}, {33, 33, 2}}) {
    EXPECT_EQ(traffic_of<float>(step).lines, lines) << step;
    EXPECT_EQ(traffic_of<float>(step).wavefronts, wavefronts) << step;
  }
  EXPECT_EQ(traffic_of(4, through_slice_kernel<float>).wavefronts, 8);
  EXPECT_EQ(traffic_of<double>(1).wavefronts, 4);
  EXPECT_EQ(traffic_of<double>(2).wavefronts, 8);
  EXPECT_EQ(traffic_of<uint4>(1).lines, 8);
  EXPECT_EQ(traffic_of<uint4>(1).wavefronts, 8);
  EXPECT_EQ(traffic_of<uint4>(2).lines, 12);
  EXPECT_EQ(traffic_of<uint4>(2).wavefronts, 16);
  EXPECT_EQ(traffic_of<uint4>(3).wavefronts, 8);
  EXPECT_EQ(traffic_of<uint16_t>(1).wavefronts, 2);
}

TEST(TrafficCount, OfSectors) {
  EXPECT_EQ(traffic_of<float>(1).bytes, 128 + 128);
  EXPECT_EQ(traffic_of<float>(4).bytes, 512 + 128);
  EXPECT_EQ(traffic_of<float>(8).bytes, 1024 + 128);
  EXPECT_EQ(traffic_of<float>(33).bytes, 1024 + 128);
  EXPECT_EQ(traffic_of<uint16_t>(1).bytes, 64 + 64);
}

__global__ void add_kernel(float* to, int step) { atomicAdd(to + threadIdx.x * step, 1.0F); }

TEST(TrafficCount, OfAtomicSums) {
  auto* to = static_cast<float*>(simt::allocate(4096));
  std::fill_n(to, 1024, 0.0F);
  for (const auto& [step, lines, bytes] : {std::tuple{0, 1, 32}, {1, 1, 128}, {8, 8, 1024}, {32, 32, 1024}}) {
    const auto traffic = simt::traffic_of(
        [&, step = step] { simt::launch(add_kernel, {.grid = dim3(1), .block = dim3(32)}, to, step); });
    EXPECT_EQ(traffic.lines, lines) << step;
    EXPECT_EQ(traffic.bytes, bytes) << step;
  }
  simt::release(to);
}

// Block b reads `count` values from number step * b on.
__global__ void windows_kernel(const float* from, float* to, int step, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += from[static_cast<int>(blockIdx.x) * step + i];
  to[blockIdx.x] = sum;
}

TEST(Reads, CountWhatSeveralBlocksReadForEach) {
  const unsigned blocks = 50;
  const int step = 16;
  const auto size = static_cast<size_t>(step * blocks + 16) * sizeof(float);
  auto *from = static_cast<float*>(simt::allocate(size)), *to = static_cast<float*>(simt::allocate(size));
  const auto bytes = [&](int count) {
    return simt::bytes_read({.grid = dim3(blocks), .block = dim3(1)}, [=] { windows_kernel(from, to, step, count); });
  };
  EXPECT_EQ(bytes(16), blocks * 64);
  EXPECT_EQ(bytes(24), blocks * 96);
  EXPECT_EQ(bytes(32), blocks * 128);
  EXPECT_EQ(bytes(1), blocks * 32);  // a sector
  simt::release(from);
  simt::release(to);
}

}  // namespace
