// The emulator runs correct kernels as CUDA does and rejects wrong ones: each kind of mistake has a kernel here.

#include <cooperative_groups.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cppcuda/kit/cuda/fail.h"
#include "cppcuda/kit/cuda/global_memory.cuh"
#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "emulator.h"

namespace {

namespace simt = cppcuda::simt;
using cppcuda::kit::forget;
using cppcuda::kit::shared_memory;
using cppcuda::kit::warp_memory;

// Device memory that the test can also read and write.
template <class T>
class Array {
 public:
  explicit Array(size_t size) : data_(static_cast<T*>(simt::allocate(size * sizeof(T)))), size_(size) {}
  Array(std::initializer_list<T> values) : Array(values.size()) { std::copy(values.begin(), values.end(), data_); }
  ~Array() { simt::release(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* get() { return data_; }
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

template <class F>
std::string error_of(F call) {
  try {
    call();
  } catch (const simt::Error& e) {
    return e.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_CONTAINS(text, part) EXPECT_PRED2(contains, text, part)

__global__ void write_indices(int* out) {
  const auto block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const auto thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += static_cast<int>(block * 1000 + thread);
}

TEST(Simt, EveryThreadOfAGridRunsOnce) {
  Array<int> out(2 * 3 * 2 * 4 * 2 * 3);
  std::fill_n(out.get(), 2 * 3 * 2 * 4 * 2 * 3, 0);
  simt::launch(write_indices, {.grid = {2, 3, 2}, .block = {4, 2, 3}}, out.get());
  std::vector<int> expected;
  for (int block = 0; block < 12; ++block) {
    const auto part = numbers(block * 1000, 24);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(out.values(), expected);
}

// Reverses the data through static shared memory.
__global__ void reverse_static(int* data) {
  __shared__ int tile[64];
  tile[threadIdx.x] = data[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  data[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}

template <class T, bool Barrier>
__global__ void reverse_dynamic(T* data) {
  T* tile = shared_memory<T>();
  tile[threadIdx.x] = data[threadIdx.x];
  if (Barrier) __syncthreads();
  data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

TEST(Simt, SharedMemoryAndBarriers) {
  Array<int> data(128);
  std::iota(data.get(), data.get() + 128, 0);
  simt::launch(reverse_static, {.grid = 2, .block = 64}, data.get());
  auto expected = numbers(0, 128);
  std::reverse(expected.begin(), expected.begin() + 64);
  std::reverse(expected.begin() + 64, expected.end());
  EXPECT_EQ(data.values(), expected);
  simt::launch(reverse_dynamic<int, true>, {.grid = 1, .block = 128, .shared_bytes = 128 * sizeof(int)}, data.get());
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(data.values(), expected);
}

TEST(Simt, AMissingBarrierIsFound) {
  Array<int> data(128);
  std::iota(data.get(), data.get() + 128, 0);
  const simt::Launch launch{.grid = 1, .block = 128, .shared_bytes = 128 * sizeof(int)};
  EXPECT_CONTAINS(error_of([&] { simt::launch(reverse_dynamic<int, false>, launch, data.get()); }),
                  "the result depends on the order in which threads run");
}

__global__ void keep_shared(float* seen) {
  float* memory = shared_memory<float>();
  __shared__ float fixed;
  seen[blockIdx.x * 2] = memory[0];
  seen[blockIdx.x * 2 + 1] = fixed;
  memory[0] = fixed = 1;
}

TEST(Simt, SharedMemoryIsNaNAtTheStartOfEachBlock) {
  Array<float> seen(8);
  std::fill_n(seen.get(), 8, 0.f);
  simt::launch(keep_shared, {.grid = 4, .block = 1, .shared_bytes = sizeof(float)}, seen.get());
  for (const float v : seen.values()) EXPECT_TRUE(std::isnan(v));
}

// Each warp reverses its numbers through its own slice of shared memory.
__global__ void reverse_in_warps(int* data, int count) {
  int* slice = warp_memory<int>(count);
  const unsigned lane = threadIdx.x % 32;
  slice[lane] = data[threadIdx.x];
  __syncwarp();
  data[threadIdx.x] = slice[31 - lane];
}

__global__ void slices_of_other_sizes(int* data) { data[threadIdx.x] = *warp_memory<int>(threadIdx.x < 32 ? 2 : 1); }

__global__ void slice_and_all(int* data, bool slice_first) {
  if (slice_first) data[0] = *warp_memory<int>(1);
  data[1] = *shared_memory<int>();
  if (!slice_first) data[0] = *warp_memory<int>(1);
}

TEST(Simt, SharedMemoryOfAWarp) {
  Array<int> data(64);
  std::iota(data.get(), data.get() + 64, 0);
  const simt::Launch launch{.grid = 1, .block = 64, .shared_bytes = 64 * sizeof(int)};
  simt::launch(reverse_in_warps, launch, data.get(), 32);
  auto expected = numbers(0, 64);
  std::reverse(expected.begin(), expected.begin() + 32);
  std::reverse(expected.begin() + 32, expected.end());
  EXPECT_EQ(data.values(), expected);
  EXPECT_CONTAINS(error_of([&] { simt::launch(reverse_in_warps, launch, data.get(), 33); }),
                  "of 132 bytes, but 2 warps have 256 bytes");
  EXPECT_CONTAINS(error_of([&] { simt::launch(slices_of_other_sizes, launch, data.get()); }), ", but before of ");
  const simt::Launch one{.grid = 1, .block = 1, .shared_bytes = sizeof(int)};
  EXPECT_CONTAINS(error_of([&] { simt::launch(slice_and_all, one, data.get(), true); }),
                  "of a block that takes warp_memory");
  EXPECT_CONTAINS(error_of([&] { simt::launch(slice_and_all, one, data.get(), false); }),
                  "but the block takes shared_memory");
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

TEST(Simt, ForgottenSharedMemoryIsNaN) {
  Array<float> from{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  Array<float> to(11);
  const simt::Launch launch{.grid = 2, .block = 4, .shared_bytes = 4 * sizeof(float)};
  simt::launch(copy_tiles, launch, from.get(), to.get(), 11u, false);
  EXPECT_EQ(to.values(), from.values());
  simt::launch(copy_tiles, launch, from.get(), to.get(), 11u, true);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(to.get()[i], from.get()[i]) << i;
  EXPECT_TRUE(std::isnan(to.get()[10]));
}

TEST(Simt, NewDeviceMemoryIsNaN) {
  const Array<double> wide(3);
  const Array<__half> narrow(3);
  for (const double v : wide.values()) EXPECT_TRUE(std::isnan(v));
  for (const __half v : narrow.values()) EXPECT_TRUE(std::isnan(__half2float(v)));
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
  simt::launch(shuffles<T>, {.grid = 1, .block = 32}, out.get());
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
      EXPECT_EQ(static_cast<float>(out.get()[lane * 6 + i]), static_cast<float>(expected[i])) << lane << ", " << i;
    }
  }
}

TEST(Simt, Shuffles) {
  check_shuffles<int>();
  check_shuffles<unsigned>();
  check_shuffles<long long>();
  check_shuffles<float>();
  check_shuffles<double>();
  check_shuffles<__half>();
  check_shuffles<__nv_bfloat16>();
}

template <class T>
concept CanShuffle = requires(T value) { __shfl_xor_sync(~0u, value, 1); };

struct Pair {
  float a, b;
};

TEST(Simt, ShufflesTakeWhatCudaTakes) {
  EXPECT_TRUE(CanShuffle<float>);
  EXPECT_FALSE(CanShuffle<Pair>);
  EXPECT_FALSE(CanShuffle<float4>);
}

__global__ void votes(unsigned* out) {
  out[threadIdx.x * 3] = __ballot_sync(~0u, threadIdx.x % 3 == 0);
  out[threadIdx.x * 3 + 1] = __any_sync(~0u, threadIdx.x == 31);
  out[threadIdx.x * 3 + 2] = __all_sync(~0u, threadIdx.x < 31);
}

TEST(Simt, Votes) {
  Array<unsigned> out(96);
  simt::launch(votes, {.grid = 1, .block = 32}, out.get());
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out.get()[lane * 3], 0x49249249u);
    EXPECT_EQ(out.get()[lane * 3 + 1], 1u);
    EXPECT_EQ(out.get()[lane * 3 + 2], 0u);
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

TEST(Simt, GroupsOfAWarpMayDiverge) {
  Array<int> out(32);
  simt::launch(group_sums, {.grid = 1, .block = 32}, out.get());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out.get()[i], (16 * (i / 4) + 6) * (i / 4 + 1));
}

__global__ void shuffle_in_half_a_warp(int* out, unsigned mask) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(mask, static_cast<int>(threadIdx.x), 1);
}

__global__ void shuffle_and_barrier(int* out) {
  if (threadIdx.x == 7)
    __syncthreads();
  else
    out[threadIdx.x] = __shfl_xor_sync(~0u, static_cast<int>(threadIdx.x), 1);
}

__global__ void two_shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane % 2) {
    out[lane] = __shfl_up_sync(~0u, lane, 1u);
  } else {
    out[lane] = __shfl_down_sync(~0u, lane, 1u);
  }
}

__global__ void two_barriers(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void read_outside_of_the_mask(int* out) {
  if (threadIdx.x < 8) out[threadIdx.x] = __shfl_down_sync(0xFFu, static_cast<int>(threadIdx.x), 1u);
}

__global__ void odd_width(int* out) { out[threadIdx.x] = __shfl_sync(~0u, 1, 0, 12); }

TEST(Simt, DivergenceAroundCollectivesIsAnErrorThatNamesTheThread) {
  Array<int> out(64);
  const simt::Launch warp{.grid = 1, .block = 32}, two_warps{.grid = 1, .block = 64};
  EXPECT_CONTAINS(error_of([&] { simt::launch(shuffle_in_half_a_warp, warp, out.get(), ~0u); }),
                  "thread (0, 0, 0) of block (0, 0, 0): __shfl_xor_sync in test_emulator.cpp:");
  EXPECT_CONTAINS(error_of([&] { simt::launch(shuffle_in_half_a_warp, warp, out.get(), ~0u); }),
                  "with mask 0xffffffff waits for lane 16, which has exited");
  EXPECT_EQ(error_of([&] { simt::launch(shuffle_in_half_a_warp, warp, out.get(), 0xFFFFu); }), "no error");
  EXPECT_CONTAINS(error_of([&] { simt::launch(shuffle_in_half_a_warp, warp, out.get(), 0xFFFEu); }),
                  "with mask 0xfffe, which lacks its own lane 0");
  const simt::Launch part{.grid = 1, .block = 20};
  EXPECT_CONTAINS(error_of([&] { simt::launch(group_sums, {.grid = 1, .block = 18}, out.get()); }),
                  "which the block does not have");
  EXPECT_EQ(error_of([&] { simt::launch(group_sums, part, out.get()); }), "no error");
  EXPECT_CONTAINS(error_of([&] { simt::launch(shuffle_and_barrier, warp, out.get()); }),
                  "waits for lane 7, which waits at __syncthreads in test_emulator.cpp:");
  EXPECT_CONTAINS(error_of([&] { simt::launch(two_shuffles, warp, out.get()); }),
                  "waits for lane 1, which waits at __shfl_up_sync");
  EXPECT_CONTAINS(error_of([&] { simt::launch(two_barriers, two_warps, out.get()); }),
                  "thread (0, 0, 0) of block (0, 0, 0) waits at __syncthreads in test_emulator.cpp:");
  EXPECT_CONTAINS(error_of([&] { simt::launch(read_outside_of_the_mask, warp, out.get()); }),
                  "thread (7, 0, 0) of block (0, 0, 0): __shfl_down_sync in test_emulator.cpp:");
  EXPECT_CONTAINS(error_of([&] { simt::launch(odd_width, warp, out.get()); }), "with width 12");
  // The emulator can be used after an error.
  std::fill_n(out.get(), 64, 0);
  EXPECT_EQ(error_of([&] { simt::launch(group_sums, warp, out.get()); }), "no error");
}

__global__ void barrier_after_exit(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

TEST(Simt, ABarrierDoesNotWaitForThreadsThatHaveExited) {
  Array<int> out(40);
  simt::launch(barrier_after_exit, {.grid = 1, .block = 64}, out.get());
  EXPECT_EQ(out.values(), std::vector<int>(40, 1));
}

// Each block writes, then reads what the next one wrote.
__global__ void pass_on(int* values, int* out) {
  __shared__ int own;
  own = static_cast<int>(blockIdx.x);
  values[blockIdx.x] = own * 10;
  cooperative_groups::this_grid().sync();
  out[blockIdx.x] = values[(blockIdx.x + 1) % gridDim.x] + own;
}

__global__ void not_all_sync(int* out) {
  if (blockIdx.x > 0) cooperative_groups::this_grid().sync();
  out[blockIdx.x] = 1;
}

TEST(Simt, GridsThatSynchronise) {
  Array<int> values(4), out(4);
  const simt::Launch launch{.grid = 4, .block = 1, .cooperative = true};
  simt::launch(pass_on, launch, values.get(), out.get());
  EXPECT_EQ(out.values(), (std::vector<int>{10, 21, 32, 3}));
  EXPECT_CONTAINS(error_of([&] { simt::launch(not_all_sync, launch, out.get()); }), "of block (0, 0, 0) has exited");
}

__global__ void add_in_order(float* out) {
  for (int i = 0; i < 2; ++i) *out += static_cast<float>(threadIdx.x) * 0.1f;  // a race
}

TEST(Simt, ResultsThatDependOnTheOrderAreFound) {
  Array<float> out{0.f};
  EXPECT_CONTAINS(error_of([&] { simt::launch(add_in_order, {.grid = 1, .block = 64}, out.get()); }),
                  "byte 0 of an allocation of 4");
}

__global__ void copy_with(float4* to, const float4* from, bool aligned) {
  const float* begin = reinterpret_cast<const float*>(from) + (aligned ? 0 : 1);
  __stcs(to, __ldg(reinterpret_cast<const float4*>(begin)));
}

TEST(Simt, AMisalignedVectorAccessIsAnErrorThatNamesTheThread) {
  Array<float4> to(1), from(2);
  const simt::Launch one{.grid = 1, .block = 1};
  EXPECT_EQ(error_of([&] { simt::launch(copy_with, one, to.get(), from.get(), true); }), "no error");
  EXPECT_CONTAINS(error_of([&] { simt::launch(copy_with, one, to.get(), from.get(), false); }),
                  "thread (0, 0, 0) of block (0, 0, 0): __ldg in test_emulator.cpp:");
}

__global__ void store_with_hint_to_shared(float4* out) {
  float4* shared = shared_memory<float4>();
  __stwb(shared, float4{1, 2, 3, 4});
  *out = *shared;
}

__global__ void load_with_hint(float* to, const float* from, int index) { *to = __ldcs(from + index); }

TEST(Simt, AccessesWithAHintAreForGlobalMemory) {
  Array<float4> out(1);
  Array<float> to(1), from(3);
  const simt::Launch one{.grid = 1, .block = 1, .shared_bytes = sizeof(float4)};
  EXPECT_CONTAINS(error_of([&] { simt::launch(store_with_hint_to_shared, one, out.get()); }),
                  "which is not global memory");
  EXPECT_EQ(error_of([&] { simt::launch(load_with_hint, one, to.get(), from.get(), 2); }), "no error");
  EXPECT_CONTAINS(error_of([&] { simt::launch(load_with_hint, one, to.get(), from.get(), 3); }),
                  "past the end of an allocation");
}

__global__ void access(float* memory, int index) { memory[index] = 1; }
__global__ void access_as_vector(float* memory, int index) {
  *reinterpret_cast<float4*>(memory + index) = {1, 2, 3, 4};
}
__global__ void access_shared(float* out, int index) {
  shared_memory<float>()[index] = 1;
  *out = shared_memory<float>()[index];
}
__global__ void access_slice(float* out, int index) {
  warp_memory<float>(2)[index] = 1;
  *out = warp_memory<float>(2)[index];
}
__global__ void access_static(float* out, int index) {
  __shared__ float tile[4];
  float* begin = tile;
  begin[index] = 1;
  *out = begin[index];
}

// The sanitizers end the process. This does not test what they find, only that they see accesses of device code.
TEST(SimtDeathTest, SanitizersSeeDeviceCode) {
  Array<float> memory(5);
  const simt::Launch one{.grid = 1, .block = 1, .shared_bytes = 4 * sizeof(float)};
  simt::launch(access, one, memory.get(), 4);
  EXPECT_DEATH(simt::launch(access, one, memory.get(), 5), "heap-buffer-overflow|insufficient space");
  EXPECT_DEATH(simt::launch(access_as_vector, one, memory.get(), 1), "misaligned address");
  simt::launch(access_shared, one, memory.get(), 3);
  EXPECT_DEATH(simt::launch(access_shared, one, memory.get(), 4), "heap-buffer-overflow|insufficient space");
  const simt::Launch two_warps{.grid = 1, .block = 64, .shared_bytes = 4 * sizeof(float)};
  simt::launch(access_slice, two_warps, memory.get(), 1);
  EXPECT_DEATH(simt::launch(access_slice, two_warps, memory.get(), 2), "heap-buffer-overflow|insufficient space");
  simt::launch(access_static, one, memory.get(), 3);
  EXPECT_DEATH(simt::launch(access_static, one, memory.get(), 4), "global-buffer-overflow|insufficient space");
}

__global__ void half_arithmetic(__half* h, __nv_bfloat16* b) {
  h[threadIdx.x] = h[threadIdx.x] * h[threadIdx.x] + __float2half(0.5f);
  b[threadIdx.x] = __float2bfloat16(2.f * __bfloat162float(b[threadIdx.x]));
}

TEST(Simt, HalfAndBfloat16AreCudas) {
  Array<__half> h{__float2half(3.f), __float2half(-2.f)};
  Array<__nv_bfloat16> b{__float2bfloat16(3.f), __float2bfloat16(-2.f)};
  simt::launch(half_arithmetic, {.grid = 1, .block = 2}, h.get(), b.get());
  EXPECT_EQ(__half2float(h.get()[0]), 9.5f);
  EXPECT_EQ(__half2float(h.get()[1]), 4.5f);
  EXPECT_EQ(__bfloat162float(b.get()[0]), 6.f);
  EXPECT_EQ(__bfloat162float(b.get()[1]), -4.f);
}

TEST(Simt, LaunchesThatCudaRefuses) {
  Array<int> out(1);
  auto error = [&](const simt::Launch& launch) {
    return error_of([&] { simt::launch(write_indices, launch, out.get()); });
  };
  EXPECT_EQ(error({.grid = 1, .block = 1025}), "a block of 1025 threads");
  EXPECT_EQ(error({.grid = {1, 65536}, .block = 1}), "a grid of (1, 65536, 1) blocks");
  EXPECT_EQ(error({.grid = 1, .block = 1, .shared_bytes = 49153}), "a block with more than 48 KiB of shared memory");
  EXPECT_EQ(error_of([] { __syncthreads(); }), "device code was called outside of a launch");
}

template <class T>
__global__ void sum_kernel(T* sums, const T* values) {
  atomicAdd(sums + threadIdx.x % 2, values[threadIdx.x]);
}

// Sums of numbers of different sizes, for which each order has a rounding of its own.
template <class T>
void expect_sums() {
  Array<T> sums{T(1), T(2)}, values(256);
  double expected[2] = {1, 2};
  for (int i = 0; i < 256; ++i) {
    values.get()[i] = static_cast<T>(std::exp(i % 17));
    expected[i % 2] += static_cast<double>(values.get()[i]);
  }
  simt::launch(sum_kernel<T>, {.grid = 3, .block = 256}, sums.get(), values.get());
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(sums.get()[i] / (3 * expected[i] - 2 * (i + 1)), 1, 1e3 * std::numeric_limits<T>::epsilon());
  }
}

TEST(Simt, AtomicSumsMayDependOnTheOrderByTheirRounding) {
  expect_sums<float>();
  expect_sums<double>();
}

template <class Vector>
__global__ void sum_vectors_kernel(float* sums, const float* values) {
  atomicAdd(reinterpret_cast<Vector*>(sums), reinterpret_cast<const Vector*>(values)[threadIdx.x]);
}

TEST(Simt, AtomicSumsOfVectors) {
  Array<float> sums{1, 2, 3, 4, 5}, values{1, 10, 2, 20, 3, 30, 4, 40};
  simt::launch(sum_vectors_kernel<float2>, {.grid = 1, .block = 4}, sums.get(), values.get());
  simt::launch(sum_vectors_kernel<float4>, {.grid = 1, .block = 2}, sums.get(), values.get());
  const float expected[] = {1 + 10 + 4, 2 + 100 + 40, 3 + 6, 4 + 60, 5};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sums.get()[i], expected[i]);
  EXPECT_CONTAINS(error_of([&] {
                    simt::launch(sum_vectors_kernel<float2>, {.grid = 1, .block = 1}, sums.get() + 1, values.get());
                  }),
                  "which is misaligned");
  EXPECT_CONTAINS(error_of([&] {
                    simt::launch(sum_vectors_kernel<float2>, {.grid = 1, .block = 1}, sums.get() + 4, values.get());
                  }),
                  "extends past the end of an allocation");
}

TEST(Simt, AtomicSumsOfNaNAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  Array<float> sums{0, 0}, values{infinity, 1, -infinity, 1};
  simt::launch(sum_kernel<float>, {.grid = 1, .block = 4}, sums.get(), values.get());
  EXPECT_TRUE(std::isnan(sums.get()[0]));
  EXPECT_EQ(sums.get()[1], 2);
}

// Adds while the sum is small. What the last thread adds depends on the order.
__global__ void add_until_kernel(float* sum) { atomicAdd(sum, *sum < 1000 ? static_cast<float>(threadIdx.x) : 0); }

__global__ void number_kernel(float* count, float* numbers) { numbers[threadIdx.x] = atomicAdd(count, 1.0F); }

TEST(Simt, OtherDependencesOfAtomicSumsAreFound) {
  Array<float> sum{0};
  EXPECT_CONTAINS(error_of([&] { simt::launch(add_until_kernel, {.grid = 1, .block = 256}, sum.get()); }),
                  "the result depends on the order in which threads run");
  Array<float> count{0}, numbers(64);
  EXPECT_CONTAINS(error_of([&] { simt::launch(number_kernel, {.grid = 1, .block = 64}, count.get(), numbers.get()); }),
                  "the result depends on the order in which threads run");
}

// The bytes beside a sum must be the same in each order.
__global__ void sum_and_write_kernel(float* sum, int* last) {
  atomicAdd(sum, 0.1F);
  *last = static_cast<int>(threadIdx.x);
}

TEST(Simt, RoundingExcusesOnlyTheSums) {
  Array<float> values{0, 0};
  EXPECT_CONTAINS(error_of([&] {
                    simt::launch(sum_and_write_kernel, {.grid = 1, .block = 64}, values.get(),
                                 reinterpret_cast<int*>(values.get() + 1));
                  }),
                  "byte 4 of an allocation of 8 bytes");
}

__global__ void fail_kernel(const int* index) {
  if (index[threadIdx.x] < 0) cppcuda::kit::fail_on_device("my_op", "indices must be in [0, V)");
}

TEST(Simt, FailureOnTheDevice) {
  Array<int> index{1, 2, -3, 4};
  EXPECT_EQ(error_of([&] { simt::launch(fail_kernel, {.grid = 1, .block = 4}, index.get()); }),
            "thread (2, 0, 0) of block (0, 0, 0): my_op: indices must be in [0, V)");
}

}  // namespace
