// The emulator runs correct kernels as a GPU does and rejects wrong ones: each kind of mistake has a kernel here.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "cppcuda/kit/cuda/fail.h"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "emulator.h"

namespace {

namespace emulator = cppcuda::emulator;
using cppcuda::kit::forget;
using cppcuda::kit::shared_memory;
using cppcuda::kit::warp_memory;

// Device memory that the test can also read and write.
template <class T>
class Array {
 public:
  explicit Array(size_t size, T value = {})
      : data_(static_cast<T*>(emulator::allocate(size * sizeof(T)))), size_(size) {
    std::fill_n(data_, size, value);
  }
  Array(std::initializer_list<T> values) : Array(values.size()) { std::copy(values.begin(), values.end(), data_); }
  ~Array() { emulator::release(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* get() { return data_; }
  T operator[](size_t i) const { return data_[i]; }
  std::vector<T> values() const { return {data_, data_ + size_}; }

 private:
  T* data_;
  size_t size_;
};

std::vector<int> numbers(int first, int count) {
  std::vector<int> v(count);
  std::iota(v.begin(), v.end(), first);
  return v;
}

struct Shape {
  dim3 grid = 1, block = 1;
  size_t shared_bytes = 0;
};

// Launches a kernel and returns the message of its error, or an empty text.
template <class... Params>
std::string launch(void (*kernel)(Params...), const Shape& shape, std::type_identity_t<Params>... params) {
  void* arguments[] = {&params...};
  cudaLaunchKernel(kernel, shape.grid, shape.block, arguments, shape.shared_bytes, nullptr);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_CONTAINS(text, part) EXPECT_PRED2(contains, text, part)

// ---------------------------------------------------------------- correct kernels

__global__ void write_indices(int* out) {
  const auto block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const auto thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += static_cast<int>(block * 1000 + thread);
}

TEST(Emulator, EveryThreadOfAGridRunsOnce) {
  Array<int> out(12 * 24);
  EXPECT_EQ(launch(write_indices, {{2, 3, 2}, {4, 2, 3}}, out.get()), "");
  std::vector<int> expected;
  for (int block = 0; block < 12; ++block) {
    const auto part = numbers(block * 1000, 24);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(out.values(), expected);
}

template <bool Static>
__global__ void reverse(int* data) {
  __shared__ int tile[64];
  int* memory = Static ? tile : shared_memory<int>();
  int* own = data + blockIdx.x * 64;
  memory[threadIdx.x] = own[threadIdx.x];
  __syncthreads();
  own[threadIdx.x] = memory[63 - threadIdx.x];
}

TEST(Emulator, SharedMemoryAndBarriers) {
  auto expected = numbers(0, 128);
  std::reverse(expected.begin(), expected.begin() + 64);
  std::reverse(expected.begin() + 64, expected.end());
  for (const auto kernel : {reverse<true>, reverse<false>}) {
    Array<int> data(128);
    std::iota(data.get(), data.get() + 128, 0);
    EXPECT_EQ(launch(kernel, {2, 64, 64 * sizeof(int)}, data.get()), "");
    EXPECT_EQ(data.values(), expected);
  }
}

template <class T>
__global__ void shuffles(T* out) {
  const int lane = threadIdx.x;
  const T mine = static_cast<T>(static_cast<float>(lane));
  T* mine_out = out + lane * 6;
  mine_out[0] = __shfl_sync(~0u, mine, 40);  // modulo the width of 32
  mine_out[1] = __shfl_sync(~0u, mine, 3, 8);
  mine_out[2] = __shfl_up_sync(~0u, mine, 3u, 8);
  mine_out[3] = __shfl_down_sync(~0u, mine, 3u, 8);
  mine_out[4] = __shfl_xor_sync(~0u, mine, 5);
  mine_out[5] = __shfl_xor_sync(~0u, mine, 9, 8);
}

template <class T>
void check_shuffles() {
  Array<T> out(32 * 6);
  EXPECT_EQ(launch(shuffles<T>, {1, 32}, out.get()), "");
  for (int lane = 0; lane < 32; ++lane) {
    const int in_group = lane % 8, group = lane - in_group;
    // According to the programming guide, a lane whose source is out of range keeps its own value.
    const int expected[] = {8,
                            group + 3,
                            in_group >= 3 ? lane - 3 : lane,
                            in_group < 5 ? lane + 3 : lane,
                            lane ^ 5,
                            (lane ^ 9) < group + 8 ? lane ^ 9 : lane};
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(static_cast<float>(out[lane * 6 + i]), static_cast<float>(expected[i])) << lane << ", " << i;
    }
  }
}

TEST(Emulator, Shuffles) {
  check_shuffles<int>();
  check_shuffles<long long>();
  check_shuffles<float>();
  check_shuffles<double>();
  check_shuffles<__half>();
  check_shuffles<__nv_bfloat16>();
}

__global__ void votes(unsigned* out) {
  out[threadIdx.x * 3] = __ballot_sync(~0u, threadIdx.x % 3 == 0);
  out[threadIdx.x * 3 + 1] = __any_sync(~0u, threadIdx.x == 31);
  out[threadIdx.x * 3 + 2] = __all_sync(~0u, threadIdx.x < 31);
}

TEST(Emulator, Votes) {
  Array<unsigned> out(96);
  EXPECT_EQ(launch(votes, {1, 32}, out.get()), "");
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane * 3], 0x49249249u);
    EXPECT_EQ(out[lane * 3 + 1], 1u);
    EXPECT_EQ(out[lane * 3 + 2], 0u);
  }
}

// Sums over groups of 4 lanes, each group with its own mask and number of iterations.
__global__ void group_sums(int* out) {
  const unsigned mask = 0xFu << (threadIdx.x / 4 * 4);
  int sum = 0;
  for (unsigned turn = 0; turn <= threadIdx.x / 4; ++turn) {
    int value = static_cast<int>(threadIdx.x);
    for (int offset = 2; offset > 0; offset /= 2) value += __shfl_xor_sync(mask, value, offset);
    sum += value;
    __syncwarp(mask);
  }
  out[threadIdx.x] = sum;
}

TEST(Emulator, GroupsOfAWarpMayDiverge) {
  Array<int> out(32);
  EXPECT_EQ(launch(group_sums, {1, 32}, out.get()), "");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], (16 * (i / 4) + 6) * (i / 4 + 1));
}

__global__ void barrier_after_exit(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

TEST(Emulator, ABarrierDoesNotWaitForThreadsThatHaveExited) {
  Array<int> out(40);
  EXPECT_EQ(launch(barrier_after_exit, {1, 64}, out.get()), "");
  EXPECT_EQ(out.values(), std::vector<int>(40, 1));
}

__global__ void half_arithmetic(__half* h, __nv_bfloat16* b) {
  h[threadIdx.x] = h[threadIdx.x] * h[threadIdx.x] + __float2half(0.5f);
  b[threadIdx.x] = __float2bfloat16(2.f * __bfloat162float(b[threadIdx.x]));
}

TEST(Emulator, SixteenBits) {
  Array<__half> h{__float2half(3.f), __float2half(-2.f)};
  Array<__nv_bfloat16> b{__float2bfloat16(3.f), __float2bfloat16(-2.f)};
  EXPECT_EQ(launch(half_arithmetic, {1, 2}, h.get(), b.get()), "");
  EXPECT_EQ(__half2float(h[0]), 9.5f);
  EXPECT_EQ(__half2float(h[1]), 4.5f);
  EXPECT_EQ(__bfloat162float(b[0]), 6.f);
  EXPECT_EQ(__bfloat162float(b[1]), -4.f);
}

template <class T>
__global__ void sum(T* sums, const T* values) {
  atomicAdd(sums + threadIdx.x % 2, values[threadIdx.x]);
}

template <class T>
void expect_sums() {
  Array<T> sums{T(1), T(2)}, values(256);
  double expected[2] = {1, 2};
  for (int i = 0; i < 256; ++i) {
    values.get()[i] = static_cast<T>(std::exp(i % 17));
    expected[i % 2] += 3 * static_cast<double>(values[i]);
  }
  EXPECT_EQ(launch(sum<T>, {3, 256}, sums.get(), values.get()), "");
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(sums[i] / expected[i], 1, 1e3 * std::numeric_limits<T>::epsilon());
}

TEST(Emulator, AtomicSums) {
  expect_sums<float>();
  expect_sums<double>();
  const float infinity = std::numeric_limits<float>::infinity();
  Array<float> sums{0, 0}, values{infinity, 1, -infinity, 1};
  EXPECT_EQ(launch(sum<float>, {1, 4}, sums.get(), values.get()), "");
  EXPECT_TRUE(std::isnan(sums[0]));
  EXPECT_EQ(sums[1], 2);
}

// ---------------------------------------------------------------- memory

TEST(Emulator, NewDeviceMemoryIsNaN) {
  auto* wide = static_cast<double*>(emulator::allocate(3 * sizeof(double)));
  auto* narrow = static_cast<__half*>(emulator::allocate(3 * sizeof(__half)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(__half2float(narrow[i])));
  emulator::release(wide);
  emulator::release(narrow);
}

template <bool Static>
__global__ void read_before_writing(float* out) {
  __shared__ float fixed;
  *out = Static ? *static_cast<volatile float*>(&fixed) : shared_memory<float>()[threadIdx.x];
}

TEST(Emulator, UndefinedSharedMemoryIsNotStored) {
  Array<float> out(1);
  const std::string message = "depends on undefined memory or registers; thread (0, 0, 0) of block (0, 0, 0) in ";
  EXPECT_CONTAINS(launch(read_before_writing<true>, {1, 1}, out.get()), message);
  EXPECT_CONTAINS(launch(read_before_writing<false>, {1, 1, 4}, out.get()), message);
}

// Copies in tiles. If the last tile is short, its last thread also reads what the previous tile left, with weight 0.
__global__ void copy_tiles(const float* from, float* to, unsigned count, bool forgets) {
  float* tile = shared_memory<float>();
  for (unsigned first = blockIdx.x * blockDim.x; first < count; first += gridDim.x * blockDim.x) {
    const unsigned i = first + threadIdx.x;
    __syncthreads();
    if (forgets) forget(tile, static_cast<int>(blockDim.x));
    if (i < count) tile[threadIdx.x] = from[i];
    __syncthreads();
    if (i < count) to[i] = tile[threadIdx.x] + 0 * tile[threadIdx.x ^ 1];
  }
}

TEST(Emulator, ForgottenSharedMemoryIsUndefined) {
  Array<float> from{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, to(11);
  const Shape shape{2, 4, 4 * sizeof(float)};
  EXPECT_EQ(launch(copy_tiles, shape, from.get(), to.get(), 11u, false), "");
  EXPECT_EQ(to.values(), from.values());
  EXPECT_CONTAINS(launch(copy_tiles, shape, from.get(), to.get(), 11u, true),
                  "depends on undefined memory or registers; thread (2, 0, 0) of block (0, 0, 0)");
}

__global__ void reverse_in_warps(int* data, int count, int beyond) {
  int* slice = warp_memory<int>(count);
  const unsigned lane = threadIdx.x % 32;
  slice[lane] = data[threadIdx.x];
  __syncwarp();
  data[threadIdx.x] = slice[31 - lane + beyond];
}

TEST(Emulator, SharedMemoryOfAWarp) {
  Array<int> data(64);
  std::iota(data.get(), data.get() + 64, 0);
  const Shape shape{1, 64, 64 * sizeof(int)};
  EXPECT_EQ(launch(reverse_in_warps, shape, data.get(), 32, 0), "");
  auto expected = numbers(0, 64);
  std::reverse(expected.begin(), expected.begin() + 32);
  std::reverse(expected.begin() + 32, expected.end());
  EXPECT_EQ(data.values(), expected);
  EXPECT_CONTAINS(launch(reverse_in_warps, shape, data.get(), 33, 0),
                  "the slice of a warp ends at 264 of 256 bytes of shared memory");
  EXPECT_CONTAINS(launch(reverse_in_warps, shape, data.get(), 32, 1),
                  "out of bounds: 4 bytes at byte 128 of shared memory, but the warp's slice is from 0 to 128");
}

__global__ void write_at(float* memory, int index) { memory[index] = 1; }
__global__ void write_vector_at(float* memory, int index) { *reinterpret_cast<float4*>(memory + index) = {1, 2, 3, 4}; }
__global__ void write_shared_at(float* out, int index) {
  shared_memory<float>()[index] = 1;
  *out = shared_memory<float>()[index];
}
__global__ void write_static_at(float* out, int index) {
  __shared__ float tile[4];
  volatile float* begin = tile;
  begin[index] = 1;
  *out = begin[index];
}
__global__ void load_with_hint(float* to, const float* from, int index) { *to = __ldcs(from + index); }
__global__ void store_with_hint_to_shared(float4* out) {
  float4* shared = shared_memory<float4>();
  __stwb(shared, float4{1, 2, 3, 4});
  *out = *shared;
}
template <class Vector>
__global__ void sum_vectors(float* sums, const float* values) {
  atomicAdd(reinterpret_cast<Vector*>(sums), reinterpret_cast<const Vector*>(values)[threadIdx.x]);
}

TEST(Emulator, AccessesOutOfBounds) {
  Array<float> memory(5);
  const Shape one{1, 1, 4 * sizeof(float)};
  const auto number = std::to_string(emulator::allocation_count() - 1);
  EXPECT_EQ(launch(write_at, one, memory.get(), 4), "");
  EXPECT_CONTAINS(launch(write_at, one, memory.get(), 5),
                  "write_at: out of bounds: 4 bytes at byte 20 of allocation " + number +
                      ", which has 20 bytes; thread (0, 0, 0) of block (0, 0, 0) in test_emulator.cu:");
  EXPECT_CONTAINS(launch(write_at, one, nullptr, 0), "out of bounds: 4 bytes at an address before all memory");
  EXPECT_EQ(launch(write_shared_at, one, memory.get(), 3), "");
  EXPECT_CONTAINS(launch(write_shared_at, one, memory.get(), 4),
                  "out of bounds: 4 bytes at byte 16 of shared memory, which has 16 bytes");
  EXPECT_EQ(launch(write_static_at, {1, 1}, memory.get(), 3), "");
  EXPECT_CONTAINS(launch(write_static_at, {1, 1}, memory.get(), 4), "at byte 16 of shared memory, which has 16 bytes");
  Array<float> from(3);
  EXPECT_EQ(launch(load_with_hint, one, memory.get(), from.get(), 2), "");
  EXPECT_CONTAINS(launch(load_with_hint, one, memory.get(), from.get(), 3), "out of bounds: 4 bytes at byte 12 of ");
  Array<float4> out(1);
  EXPECT_CONTAINS(launch(store_with_hint_to_shared, {1, 1, 16}, out.get()), "out of bounds: 16 bytes at ");
}

TEST(Emulator, MisalignedAccesses) {
  Array<float> memory(8);
  EXPECT_EQ(launch(write_vector_at, {1, 1}, memory.get(), 4), "");
  EXPECT_CONTAINS(launch(write_vector_at, {1, 1}, memory.get(), 1), "misaligned: 16 bytes at byte 4 of allocation ");
}

TEST(Emulator, AtomicSumsOfVectors) {
  Array<float> sums{1, 2, 3, 4, 5}, values{1, 10, 2, 20, 3, 30, 4, 40};
  EXPECT_EQ(launch(sum_vectors<float2>, {1, 4}, sums.get(), values.get()), "");
  EXPECT_EQ(launch(sum_vectors<float4>, {1, 2}, sums.get(), values.get()), "");
  const float expected[] = {1 + 10 + 4, 2 + 100 + 40, 3 + 6, 4 + 60, 5};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sums[i], expected[i]);
  EXPECT_CONTAINS(launch(sum_vectors<float2>, {1, 1}, sums.get() + 1, values.get()), "misaligned: 8 bytes at byte 4 ");
  EXPECT_CONTAINS(launch(sum_vectors<float2>, {1, 1}, sums.get() + 4, values.get()),
                  "out of bounds: 8 bytes at byte 16 ");
}

// ---------------------------------------------------------------- collectives

__global__ void shuffle_in_half_a_warp(int* out, unsigned mask, int distance) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(mask, static_cast<int>(threadIdx.x), distance);
}

__global__ void shuffle_and_barrier(int* out) {
  if (threadIdx.x == 7) {
    __syncthreads();
  } else {
    out[threadIdx.x] = __shfl_xor_sync(~0u, static_cast<int>(threadIdx.x), 1);
  }
}

__global__ void two_barriers(int* out) {
  if (threadIdx.x < 32) {
    asm volatile("bar.sync 1;");
  } else {
    asm volatile("bar.sync 2;");
  }
  out[threadIdx.x] = 1;
}

__global__ void read_outside_of_the_mask(int* out) {
  if (threadIdx.x < 8) out[threadIdx.x] = __shfl_down_sync(0xFFu, static_cast<int>(threadIdx.x), 1u);
}

TEST(Emulator, DivergenceAroundCollectivesIsAnErrorThatNamesTheThread) {
  Array<int> out(64);
  const Shape warp{1, 32};
  // Lanes that have exited, or that the block does not have, may be in the mask, but not be read.
  EXPECT_EQ(launch(shuffle_in_half_a_warp, warp, out.get(), ~0u, 1), "");
  EXPECT_CONTAINS(launch(shuffle_in_half_a_warp, warp, out.get(), ~0u, 16), "lane 0 reads lane 16, which has exited");
  EXPECT_EQ(launch(shuffle_in_half_a_warp, warp, out.get(), 0xFFFFu, 1), "");
  EXPECT_CONTAINS(launch(shuffle_in_half_a_warp, warp, out.get(), 0xFFFEu, 1), "the mask 0xfffe lacks its own lane 0");
  EXPECT_CONTAINS(launch(group_sums, {1, 18}, out.get()), "lane 16 reads lane 18, which the block does not have");
  EXPECT_EQ(launch(group_sums, {1, 20}, out.get()), "");
  const std::string error = launch(shuffle_and_barrier, warp, out.get());
  EXPECT_CONTAINS(error, "waits with mask 0xffffffff for lane 7, which waits at ");
  EXPECT_CONTAINS(error, "thread (0, 0, 0) of block (0, 0, 0) in ");
  EXPECT_CONTAINS(launch(two_barriers, {1, 64}, out.get()), "threads wait for each other at different barriers");
  EXPECT_CONTAINS(launch(read_outside_of_the_mask, warp, out.get()), "lane 7 reads lane 8, which is not in the mask");
  EXPECT_EQ(launch(group_sums, warp, out.get()), "");  // after these errors
}

TEST(Emulator, LaunchesThatCudaRefuses) {
  Array<int> out(1);
  EXPECT_CONTAINS(launch(write_indices, {1, 1025}, out.get()), "launched with 1025 threads, compiled for at most 1024");
  EXPECT_EQ(launch(write_indices, {{1, 65536}, 1}, out.get()), "a grid of (1, 65536, 1) blocks");
  EXPECT_CONTAINS(launch(write_indices, {1, 1, 49153}, out.get()), "49153 bytes of shared memory, without ");
}

__global__ void fail(const int* index) {
#if defined(CPPCUDA_DEVICE_CODE)
  if (index[threadIdx.x] < 0) cppcuda::kit::fail_on_device("my_op", "indices must be in [0, V)");
#endif
}

TEST(Emulator, FailureOnTheDevice) {
  Array<int> index{1, 2, -3, 4};
  EXPECT_CONTAINS(launch(fail, {1, 4}, index.get()),
                  "my_op: indices must be in [0, V); thread (2, 0, 0) of block (0, 0, 0)");
}

// ---------------------------------------------------------------- races

enum class Order { nothing, shuffle, vote, warp, half_warp, block };

template <Order O>
__device__ void order() {
  if constexpr (O == Order::shuffle) __shfl_xor_sync(~0u, 1, 1);
  if constexpr (O == Order::vote) __any_sync(~0u, 1);
  if constexpr (O == Order::warp) __syncwarp();
  if constexpr (O == Order::half_warp) __syncwarp(threadIdx.x % 32 < 16 ? 0xFFFFu : 0xFFFF0000u);
  if constexpr (O == Order::block) __syncthreads();
}

// Each thread reads what the thread at a distance wrote. The values are right in any order: they were there before.
template <Order O, class T>
__global__ void exchange(T* out, unsigned distance) {
  volatile T* shared = shared_memory<T>();
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
__global__ void overwrite(int* out, unsigned distance) {
  volatile int* shared = shared_memory<int>();
  shared[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];
  order<O>();
  shared[threadIdx.x ^ distance] = 1;
}

template <Order O>
__global__ void through_global(int* out, unsigned distance) {
  volatile int* memory = out;
  memory[threadIdx.x] = 1;
  order<O>();
  if (memory[threadIdx.x ^ distance] != 1) memory[threadIdx.x] = 2;
}

// All blocks write the same number.
__global__ void one_word(int* out) {
  if (threadIdx.x == 0) out[0] = 7;
}

// Each lane waits for the previous one, so the last lane reads after the writes of all.
__global__ void chain(int* out) {
  volatile int* shared = shared_memory<int>();
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
__global__ void sum_and_read(float* out) {
  atomicAdd(out, 1.0F);
  order<O>();
  if (threadIdx.x == 5 && *static_cast<volatile float*>(out) < 0) out[1] = 1;
}

// The first thread clears the sum of all.
template <Order O>
__global__ void clear_and_sum(float* out) {
  if (threadIdx.x == 0) *out = 0;
  order<O>();
  atomicAdd(out, 1.0F);
}

template <Order O>
__global__ void read_and_sum(float* out) {
  const float before = *static_cast<volatile float*>(out);
  order<O>();
  atomicAdd(out, before);
}

// Without this barrier the values are wrong in every order.
__global__ void reverse_without_barrier(int* data) {
  volatile int* tile = shared_memory<int>();
  tile[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// The message of the race, or an empty one.
template <class T, class... Params>
std::string race_of(void (*kernel)(T*, Params...), unsigned blocks, unsigned threads, Params... params) {
  Array<T> out(threads, T(1));
  emulator::check_races(true);
  const std::string message = launch(kernel, {blocks, threads, threads * sizeof(T)}, out.get(), params...);
  emulator::check_races(false);
  return message;
}

bool is_race(const std::string& message) { return contains(message, ": a race at byte "); }

TEST(Races, OfLanesOfAWarp) {
  for (const unsigned distance : {1u, 16u}) {
    EXPECT_PRED1(is_race, race_of(exchange<Order::nothing, int>, 1, 64, distance));
    EXPECT_PRED1(is_race, race_of(exchange<Order::shuffle, int>, 1, 64, distance));
    EXPECT_PRED1(is_race, race_of(exchange<Order::vote, int>, 1, 64, distance));
    EXPECT_EQ(race_of(exchange<Order::warp, int>, 1, 64, distance), "");
    EXPECT_EQ(race_of(exchange<Order::block, int>, 1, 64, distance), "");
    EXPECT_PRED1(is_race, race_of(overwrite<Order::shuffle>, 1, 64, distance));
    EXPECT_EQ(race_of(overwrite<Order::warp>, 1, 64, distance), "");
    EXPECT_PRED1(is_race, race_of(through_global<Order::shuffle>, 1, 64, distance));
    EXPECT_EQ(race_of(through_global<Order::warp>, 1, 64, distance), "");
  }
  EXPECT_EQ(race_of(exchange<Order::half_warp, int>, 1, 64, 1u), "");
  EXPECT_PRED1(is_race, race_of(exchange<Order::half_warp, int>, 1, 64, 16u));
  EXPECT_EQ(race_of(chain, 1, 32), "");
}

TEST(Races, OfWarpsOfABlock) {
  EXPECT_PRED1(is_race, race_of(exchange<Order::warp, int>, 1, 64, 32u));
  EXPECT_EQ(race_of(exchange<Order::block, int>, 1, 64, 32u), "");
  EXPECT_PRED1(is_race, race_of(overwrite<Order::warp>, 1, 64, 32u));
  EXPECT_EQ(race_of(overwrite<Order::block>, 1, 64, 32u), "");
  EXPECT_CONTAINS(race_of(reverse_without_barrier, 1, 64), "depends on undefined memory");
}

TEST(Races, OfBlocks) {
  EXPECT_PRED1(is_race, race_of(one_word, 2, 32));
  EXPECT_EQ(race_of(one_word, 1, 32), "");
}

// Neighbours in 16 bits share a word of memory, but not an address.
TEST(Races, NeighboursAreNone) {
  EXPECT_EQ(race_of(exchange<Order::nothing, uint16_t>, 1, 64, 0u), "");
  EXPECT_PRED1(is_race, race_of(exchange<Order::nothing, uint16_t>, 1, 64, 1u));
}

TEST(Races, OfAtomicSumsWithOtherAccesses) {
  EXPECT_PRED1(is_race, race_of(sum_and_read<Order::nothing>, 1, 64));
  EXPECT_PRED1(is_race, race_of(sum_and_read<Order::warp>, 1, 64));
  EXPECT_EQ(race_of(sum_and_read<Order::block>, 1, 64), "");
  EXPECT_PRED1(is_race, race_of(clear_and_sum<Order::shuffle>, 1, 32));
  EXPECT_EQ(race_of(clear_and_sum<Order::warp>, 1, 32), "");
  EXPECT_PRED1(is_race, race_of(read_and_sum<Order::nothing>, 1, 32));
  EXPECT_EQ(race_of(read_and_sum<Order::block>, 1, 64), "");
  EXPECT_PRED1(is_race, race_of(read_and_sum<Order::block>, 2, 64));
  EXPECT_CONTAINS(race_of(clear_and_sum<Order::nothing>, 1, 32), " adds atomically in ");
}

TEST(Races, AreNamed) {
  const std::string message = race_of(one_word, 2, 32);
  EXPECT_CONTAINS(message, "one_word: a race at byte 0 of allocation ");
  EXPECT_CONTAINS(message, "thread (0, 0, 0) of block (0, 0, 0) writes in test_emulator.cu:");
  EXPECT_CONTAINS(message, "and thread (0, 0, 0) of block (1, 0, 0) writes in test_emulator.cu:");
}

// ---------------------------------------------------------------- shared memory of functions

template <class T>
__device__ T* memory_of_function() {
  __shared__ T memory[32];
  return memory;
}

__global__ void reverse_twice(const float* from, float* to) {
  float *static_memory = memory_of_function<float>(), *dynamic_memory = shared_memory<float>();
  static_memory[threadIdx.x] = from[threadIdx.x];
  dynamic_memory[threadIdx.x] = 2 * from[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = static_memory[31 - threadIdx.x] + dynamic_memory[31 - threadIdx.x];
}

TEST(SharedMemory, OfFunctions) {
  Array<float> from(32), to(32);
  for (int i = 0; i < 32; ++i) from.get()[i] = static_cast<float>(i);
  EXPECT_EQ(launch(reverse_twice, {1, 32, 32 * sizeof(float)}, from.get(), to.get()), "");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(to.get()[i], 3.0F * static_cast<float>(31 - i));
}

// ---------------------------------------------------------------- traffic

template <class T>
__global__ void through_shared(const T* from, T* to, int step) {
  T* shared = shared_memory<T>();
  shared[threadIdx.x * step] = from[threadIdx.x * step];
  __syncthreads();
  to[threadIdx.x] = shared[threadIdx.x * step];
}

__global__ void add(float* to, int step) { atomicAdd(to + threadIdx.x * step, 1.0F); }

template <class T>
emulator::Counts counts_of(int step) {
  Array<T> from(31 * step + 1), to(32);
  return emulator::counts_of([&] {
    EXPECT_EQ(launch(through_shared<T>, {1, 32, sizeof(T) * (31 * step + 1)}, from.get(), to.get(), step), "");
  });
}

TEST(Traffic, OfSteps) {
  struct Case {
    int step;
    uint64_t lines, wavefronts;  // of a load and a store
  };
  for (const auto& [step, lines, wavefronts] :
       {Case{1, 2, 2}, {2, 3, 4}, {3, 4, 2}, {4, 5, 8}, {8, 9, 16}, {32, 33, 64}, {33, 33, 2}}) {
    EXPECT_EQ(counts_of<float>(step).lines, lines) << step;
    EXPECT_EQ(counts_of<float>(step).wavefronts, wavefronts) << step;
  }
  EXPECT_EQ(counts_of<double>(1).wavefronts, 4);
  EXPECT_EQ(counts_of<double>(2).wavefronts, 8);
  EXPECT_EQ(counts_of<uint4>(1).lines, 8);
  EXPECT_EQ(counts_of<uint4>(1).wavefronts, 8);
  EXPECT_EQ(counts_of<uint4>(2).lines, 12);
  EXPECT_EQ(counts_of<uint4>(2).wavefronts, 16);
  EXPECT_EQ(counts_of<uint4>(3).wavefronts, 8);
  EXPECT_EQ(counts_of<uint16_t>(1).wavefronts, 2);
}

TEST(Traffic, OfSectors) {
  for (const auto& [step, sectors] : {std::pair{1, 4}, {4, 16}, {8, 32}, {33, 32}}) {
    EXPECT_EQ(counts_of<float>(step).load_sectors, sectors) << step;
    EXPECT_EQ(counts_of<float>(step).store_sectors, 4) << step;
  }
  EXPECT_EQ(counts_of<uint16_t>(1).load_sectors, 2);
  Array<float> to(1024);
  for (const auto& [step, lines, sectors] : {std::tuple{0, 1, 1}, {1, 1, 4}, {8, 8, 32}, {32, 32, 32}}) {
    const auto traffic = emulator::counts_of([&, step = step] { launch(add, {1, 32}, to.get(), step); });
    EXPECT_EQ(traffic.lines, lines) << step;
    EXPECT_EQ(traffic.store_sectors, sectors) << step;
  }
}

}  // namespace
