// The kernels of this program are compiled with contraction, as nvcc compiles them.

#include <gtest/gtest.h>

#include <cmath>

#include "emulator.h"

namespace {

namespace simt = cppcuda::simt;

// Right only without contraction: the difference of a number and itself.
__global__ void square_error_kernel(float* out, float a, float rounded_square) { *out = a * a - rounded_square; }

TEST(Contraction, RoundsOnce) {
#ifndef FP_FAST_FMAF
  GTEST_SKIP() << "this machine cannot";
#endif
  const float a = 1 + 0x1p-12f, rounded_square = 1 + 0x1p-11f;
  auto* out = static_cast<float*>(simt::allocate(sizeof(float)));
  simt::launch(square_error_kernel, {.grid = 1, .block = 1}, out, a, rounded_square);
  EXPECT_EQ(*out, 0x1p-24f);
  simt::release(out);
}

}  // namespace
