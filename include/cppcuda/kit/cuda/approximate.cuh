#pragma once

// Functions that are one GPU instruction. Subnormal numbers are treated as 0. (PTX ISA, ex2 and rcp.)

namespace cppcuda::kit {

// 2^x with a relative error of at most 2^-22.
__device__ inline float approximate_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x with a relative error of at most 2^-23.
__device__ inline float approximate_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace cppcuda::kit
