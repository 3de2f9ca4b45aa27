// The race detector finds each kind of race, and none in kernels that order their accesses.

#include <gtest/gtest.h>

#include <cooperative_groups.h>

#include <algorithm>
#include <string>

#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "emulator.h"
#include "races.h"

namespace {

namespace simt = cppcuda::simt;
using cppcuda::kit::forget;
using cppcuda::kit::shared_memory;
using cppcuda::kit::warp_memory;

enum class Order { nothing, shuffle, vote, warp, half_warp, block };

template <Order O>
__device__ void order() {
  if constexpr (O == Order::shuffle) __shfl_xor_sync(~0u, 1, 1);
  if constexpr (O == Order::vote) __any_sync(~0u, 1);
  if constexpr (O == Order::warp) __syncwarp();
  if constexpr (O == Order::half_warp) __syncwarp(threadIdx.x % 32 < 16 ? 0xFFFFu : 0xFFFF0000u);
  if constexpr (O == Order::block) __syncthreads();
}

// Each thread reads what the thread at a distance wrote. The emulator's orders give the right values in any case: they
// were there before.
template <Order O, class T>
__global__ void exchange_kernel(T* out, unsigned distance) {
  T* shared = shared_memory<T>();
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < blockDim.x; ++i) shared[i] = static_cast<T>(i);
  }
  __syncthreads();
  shared[threadIdx.x] = static_cast<T>(threadIdx.x);
  order<O>();
  out[threadIdx.x] = shared[threadIdx.x ^ distance];
}

// The other way round: each thread writes what another one has read.
template <Order O>
__global__ void overwrite_kernel(int* out, unsigned distance) {
  int* shared = shared_memory<int>();
  shared[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];
  order<O>();
  shared[threadIdx.x ^ distance] = 1;
}

// As exchange_kernel, for neighbours in slices of the warps. What was there before is forgotten.
template <Order O>
__global__ void through_slice_kernel(int* out) {
  int* slice = warp_memory<int>(32);
  forget(slice, 32);
  slice[threadIdx.x % 32] = 1;
  order<O>();
  if (slice[threadIdx.x % 32 ^ 1] == 1) out[threadIdx.x] = 1;
}

template <Order O>
__global__ void through_global_kernel(int* out, unsigned distance) {
  out[threadIdx.x] = 1;
  order<O>();
  if (out[threadIdx.x ^ distance] != 1) out[threadIdx.x] = 2;
}

// All blocks write the same number.
__global__ void one_word_kernel(int* out) {
  if (threadIdx.x == 0) out[0] = 7;
}

// One block reads what another one has written, after a barrier of the grid or without one.
template <bool Barrier>
__global__ void next_block_kernel(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = 1;
  if constexpr (Barrier) cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0 && out[(blockIdx.x + 1) % gridDim.x] > 1) out[blockIdx.x] = 2;
}

// Each lane waits for the previous one, so the last lane reads after the writes of all.
__global__ void chain_kernel(int* out) {
  int* shared = shared_memory<int>();
  shared[threadIdx.x] = 1;
  for (unsigned lane = 1; lane < 32; ++lane) {
    if (threadIdx.x == lane || threadIdx.x == lane - 1) __syncwarp(1u << lane | 1u << (lane - 1));
  }
  if (threadIdx.x != 31) return;
  int sum = 0;
  for (unsigned lane = 0; lane < 32; ++lane) sum += shared[lane];
  out[0] = sum;
}

template <Order O>
__global__ void sum_and_read_kernel(float* out) {
  atomicAdd(out, 1.0F);
  order<O>();
  if (threadIdx.x == 5 && *out < 0) out[1] = 1;
}

// The first thread clears the sum of all.
template <Order O>
__global__ void clear_and_sum_kernel(float* out) {
  if (threadIdx.x == 0) *out = 0;
  order<O>();
  atomicAdd(out, 1.0F);
}

template <Order O>
__global__ void read_and_sum_kernel(float* out) {
  const float before = *out;
  order<O>();
  atomicAdd(out, before);
}

// The message of the race, or an empty one.
template <class T, class... Params>
std::string race_of(void (*kernel)(T*, Params...), unsigned blocks, unsigned threads, Params... params) {
  auto* out = static_cast<T*>(simt::allocate(threads * sizeof(T)));
  std::fill_n(out, threads, T(1));
  std::string message;
  simt::check_races(true);
  try {
    simt::launch(
        kernel,
        {.grid = dim3(blocks), .block = dim3(threads), .shared_bytes = threads * sizeof(T), .cooperative = blocks > 1},
        out, params...);
  } catch (const simt::Error& e) {
    message = e.what();
  }
  simt::check_races(false);
  simt::release(out);
  return message;
}

bool is_race(const std::string& message) { return message.find("a race at 0x") == 0; }

TEST(Races, OfLanesOfAWarp) {
  for (const unsigned distance : {1u, 16u}) {
    EXPECT_PRED1(is_race, race_of(exchange_kernel<Order::nothing, int>, 1, 64, distance));
    EXPECT_PRED1(is_race, race_of(exchange_kernel<Order::shuffle, int>, 1, 64, distance));
    EXPECT_PRED1(is_race, race_of(exchange_kernel<Order::vote, int>, 1, 64, distance));
    EXPECT_EQ(race_of(exchange_kernel<Order::warp, int>, 1, 64, distance), "");
    EXPECT_EQ(race_of(exchange_kernel<Order::block, int>, 1, 64, distance), "");
    EXPECT_PRED1(is_race, race_of(overwrite_kernel<Order::shuffle>, 1, 64, distance));
    EXPECT_EQ(race_of(overwrite_kernel<Order::warp>, 1, 64, distance), "");
    EXPECT_PRED1(is_race, race_of(through_global_kernel<Order::shuffle>, 1, 64, distance));
    EXPECT_EQ(race_of(through_global_kernel<Order::warp>, 1, 64, distance), "");
  }
  EXPECT_EQ(race_of(exchange_kernel<Order::half_warp, int>, 1, 64, 1u), "");
  EXPECT_PRED1(is_race, race_of(exchange_kernel<Order::half_warp, int>, 1, 64, 16u));
  EXPECT_PRED1(is_race, race_of(through_slice_kernel<Order::nothing>, 1, 64));
  EXPECT_EQ(race_of(through_slice_kernel<Order::warp>, 1, 64), "");
  EXPECT_EQ(race_of(chain_kernel, 1, 32), "");
}

TEST(Races, OfWarpsOfABlock) {
  EXPECT_PRED1(is_race, race_of(exchange_kernel<Order::warp, int>, 1, 64, 32u));
  EXPECT_EQ(race_of(exchange_kernel<Order::block, int>, 1, 64, 32u), "");
  EXPECT_PRED1(is_race, race_of(overwrite_kernel<Order::warp>, 1, 64, 32u));
  EXPECT_EQ(race_of(overwrite_kernel<Order::block>, 1, 64, 32u), "");
}

TEST(Races, OfBlocks) {
  EXPECT_PRED1(is_race, race_of(one_word_kernel, 2, 32));
  EXPECT_EQ(race_of(one_word_kernel, 1, 32), "");
  EXPECT_PRED1(is_race, race_of(next_block_kernel<false>, 4, 32));
  EXPECT_EQ(race_of(next_block_kernel<true>, 4, 32), "");
}

// Neighbours in 16 bits share a word of memory, but not an address.
TEST(Races, NeighboursAreNone) {
  EXPECT_EQ(race_of(exchange_kernel<Order::nothing, uint16_t>, 1, 64, 0u), "");
  EXPECT_PRED1(is_race, race_of(exchange_kernel<Order::nothing, uint16_t>, 1, 64, 1u));
}

TEST(Races, OfAtomicSumsWithOtherAccesses) {
  EXPECT_PRED1(is_race, race_of(sum_and_read_kernel<Order::nothing>, 1, 64));
  EXPECT_PRED1(is_race, race_of(sum_and_read_kernel<Order::warp>, 1, 64));
  EXPECT_EQ(race_of(sum_and_read_kernel<Order::block>, 1, 64), "");
  EXPECT_PRED1(is_race, race_of(clear_and_sum_kernel<Order::shuffle>, 1, 32));
  EXPECT_EQ(race_of(clear_and_sum_kernel<Order::warp>, 1, 32), "");
  EXPECT_PRED1(is_race, race_of(read_and_sum_kernel<Order::nothing>, 1, 32));
  EXPECT_EQ(race_of(read_and_sum_kernel<Order::block>, 1, 64), "");
  EXPECT_PRED1(is_race, race_of(read_and_sum_kernel<Order::block>, 2, 64));
  EXPECT_NE(race_of(clear_and_sum_kernel<Order::nothing>, 1, 32).find(" calls atomicAdd in simt.h:"),
            std::string::npos);
}

TEST(Races, AreNamed) {
  const std::string message = race_of(one_word_kernel, 2, 32);
  EXPECT_NE(message.find("thread 0 of block "), std::string::npos) << message;
  EXPECT_NE(message.find(" writes in test_races.cpp:"), std::string::npos) << message;
}

}  // namespace
