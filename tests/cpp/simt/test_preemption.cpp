// Preempted threads show mistakes that no order of whole segments between barriers shows.

#include <gtest/gtest.h>

#include <string>

#include "cppcuda/kit/cuda/shared_memory.cuh"
#include "emulator.h"
#include "races.h"

namespace {

namespace simt = cppcuda::simt;
using cppcuda::kit::shared_memory;

// Counts the threads, in turns of `together` threads: the others wait.
__global__ void count_kernel(int* out, unsigned together) {
  int* sum = shared_memory<int>();
  if (threadIdx.x == 0) *sum = 0;
  for (unsigned first = 0; first < blockDim.x; first += together) {
    __syncthreads();
    if (threadIdx.x - first < together) *sum += 1;
  }
  __syncthreads();
  out[threadIdx.x] = *sum;
}

// The first thread makes a mistake after some accesses, when others are suspended in the middle of theirs.
__global__ void wrong_mask_kernel(int* out) {
  for (int i = 0; i < 100; ++i) out[threadIdx.x] = i;
  if (threadIdx.x == 0) __syncwarp(0xFFFEu);
  __syncthreads();
}

template <class... Params>
std::string error_of(void (*kernel)(int*, Params...), int* out, Params... params) {
  std::string error;
  simt::preempt_threads(true);
  try {
    simt::launch(kernel, {.grid = 1, .block = 256, .shared_bytes = sizeof(int)}, out, params...);
  } catch (const simt::Error& e) {
    error = e.what();
  }
  simt::preempt_threads(false);
  return error;
}

class Preemption : public ::testing::Test {
 protected:
  ~Preemption() override { simt::release(out); }

  int* out = static_cast<int*>(simt::allocate(256 * sizeof(int)));
};

TEST_F(Preemption, FindsUpdatesThatAreLost) {
  simt::launch(count_kernel, {.grid = 1, .block = 256, .shared_bytes = sizeof(int)}, out, 256u);
  EXPECT_EQ(out[0], 256);
  const std::string error = error_of(count_kernel, out, 256u);
  EXPECT_NE(error.find("the result depends on the order in which threads run"), std::string::npos) << error;
}

TEST_F(Preemption, FindsNothingInARightKernel) {
  EXPECT_EQ(error_of(count_kernel, out, 1u), "");
  EXPECT_EQ(out[0], 256);
}

TEST_F(Preemption, EndsWithAnError) {
  const std::string error = error_of(wrong_mask_kernel, out);
  EXPECT_NE(error.find("which lacks its own lane 0"), std::string::npos) << error;
}

}  // namespace
