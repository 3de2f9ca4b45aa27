#pragma once

// Functions that are one instruction of a GPU. Subnormal numbers are flushed to 0. (PTX ISA, ex2 and rcp.)

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// 2^x, with a relative error of 2^-22.
__device__ inline float approximate_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x, with a relative error of 2^-23.
__device__ inline float approximate_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
