// Compares kit/cuda/fast_float.cuh with the functions of the C library in float64. The emulated GPU instructions are
// exact, so this tests the formulas that use them: their relative error, especially near 0.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cppcuda/kit/cuda/fast_float.cuh"

namespace {

using cppcuda::kit::FastFloat;

double error(float actual, double expected) { return std::abs(actual - expected) / std::abs(expected); }

TEST(FastFloat, FunctionsAreAccurateEnoughFor16Bits) {
  for (double magnitude = 1e-30; magnitude < 80; magnitude *= 1.01) {
    for (const float x : {static_cast<float>(magnitude), static_cast<float>(-magnitude)}) {
      const double wide = x;
      EXPECT_LT(error(exp(FastFloat(x)), std::exp(wide)), 1e-5) << x;
      EXPECT_LT(error(expm1(FastFloat(x)), std::expm1(wide)), 1e-5) << x;
      EXPECT_LT(error(tanh(FastFloat(x)), std::tanh(wide)), 2e-6) << x;
      EXPECT_LT(error(FastFloat(1) / FastFloat(x), 1 / wide), 2e-7) << x;
    }
  }
}

TEST(FastFloat, InfinityNaNAndZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp(FastFloat(-infinity)), 0);
  EXPECT_EQ(exp(FastFloat(infinity)), infinity);
  EXPECT_EQ(expm1(FastFloat(-infinity)), -1);
  EXPECT_EQ(tanh(FastFloat(infinity)), 1);
  EXPECT_EQ(tanh(FastFloat(-infinity)), -1);
  EXPECT_EQ(FastFloat(1) / FastFloat(infinity), 0);
  for (const float zero : {0.0F, -0.0F}) {
    EXPECT_EQ(std::signbit(tanh(FastFloat(zero))), std::signbit(zero));
    EXPECT_EQ(std::signbit(expm1(FastFloat(zero))), std::signbit(zero));
  }
  const FastFloat nan(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(exp(nan)) && std::isnan(expm1(nan)) && std::isnan(tanh(nan)));
}

}  // namespace
