// Compares kit/cuda/fast_float.cuh with the functions of the C library in float64: the relative error, especially near
// 0.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cppcuda/kit/cuda/fast_float.cuh"
#include "emulator.h"

namespace {

using cppcuda::kit::FastFloat;

struct Results {
  float exp, expm1, tanh, reciprocal;
};

__global__ void evaluate(const float* x, Results* results, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const FastFloat value(x[i]);
  results[i] = {float(exp(value)), float(expm1(value)), float(tanh(value)), float(FastFloat(1) / value)};
}

std::vector<Results> results_of(const std::vector<float>& x) {
  const auto count = static_cast<unsigned>(x.size());
  auto* from = static_cast<float*>(cppcuda::emulator::allocate(count * sizeof(float)));
  auto* to = static_cast<Results*>(cppcuda::emulator::allocate(count * sizeof(Results)));
  std::copy(x.begin(), x.end(), from);
  evaluate<<<(count + 127) / 128, 128>>>(from, to, count);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  std::vector<Results> results(to, to + count);
  cppcuda::emulator::release(from);
  cppcuda::emulator::release(to);
  return results;
}

double error(float actual, double expected) { return std::abs(actual - expected) / std::abs(expected); }

TEST(FastFloat, FunctionsAreAccurateEnoughFor16Bits) {
  std::vector<float> x;
  for (double magnitude = 1e-30; magnitude < 80; magnitude *= 1.01) {
    x.insert(x.end(), {static_cast<float>(magnitude), static_cast<float>(-magnitude)});
  }
  const auto results = results_of(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double wide = x[i];
    EXPECT_LT(error(results[i].exp, std::exp(wide)), 1e-5) << wide;
    EXPECT_LT(error(results[i].expm1, std::expm1(wide)), 1e-5) << wide;
    EXPECT_LT(error(results[i].tanh, std::tanh(wide)), 2e-6) << wide;
    EXPECT_LT(error(results[i].reciprocal, 1 / wide), 2e-7) << wide;
  }
}

TEST(FastFloat, InfinityNaNAndZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto r = results_of({-infinity, infinity, 0.0F, -0.0F, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(r[0].exp, 0);
  EXPECT_EQ(r[1].exp, infinity);
  EXPECT_EQ(r[0].expm1, -1);
  EXPECT_EQ(r[0].tanh, -1);
  EXPECT_EQ(r[1].tanh, 1);
  EXPECT_EQ(r[1].reciprocal, 0);
  EXPECT_FALSE(std::signbit(r[2].tanh) || std::signbit(r[2].expm1));
  EXPECT_TRUE(std::signbit(r[3].tanh) && std::signbit(r[3].expm1));
  EXPECT_TRUE(std::isnan(r[4].exp) && std::isnan(r[4].expm1) && std::isnan(r[4].tanh));
}

}  // namespace
