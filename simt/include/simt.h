#pragma once

// Declares for a C++ compiler what nvcc declares for device code. It is included before everything else (-include), so
// that kernels compile unmodified. Each CUDA thread runs as a fiber of emulator.cpp.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstdint>
#include <source_location>

#include "emulator.h"

#undef __launch_bounds__
#undef __shared__
#define __launch_bounds__(...)
// Such an array is filled and bounds-checked only in functions with internal linkage that are not templates, because
// gcc ignores the section elsewhere. Templates use kit::shared_memory.
#define __shared__ static __attribute__((section("simt_shared"), used))

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// The line in which a thread waits. Errors name it, and it distinguishes threads that wait in different lines.
using SimtLine = std::source_location;

// CUDA has more overloads, also for mixed types; these are the ones that the kernels call.
inline int min(int a, int b) { return a < b ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

inline void __syncthreads(SimtLine line = SimtLine::current()) { cppcuda::simt::sync_threads(line); }

inline void __syncwarp(unsigned mask = ~0u, SimtLine line = SimtLine::current()) {
  cppcuda::simt::sync_warp(mask, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SimtLine line = SimtLine::current()) {
  return cppcuda::simt::ballot(mask, predicate != 0, line);
}

inline int __any_sync(unsigned mask, int predicate, SimtLine line = SimtLine::current()) {
  return cppcuda::simt::ballot(mask, predicate != 0, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, SimtLine line = SimtLine::current()) {
  return cppcuda::simt::ballot(mask, predicate != 0, line) == mask;
}

// Inlined, so that the place in the kernel is known.
[[gnu::always_inline]] inline float atomicAdd(float* to, float value) { return cppcuda::simt::atomic_add(to, value); }
[[gnu::always_inline]] inline double atomicAdd(double* to, double value) {
  return cppcuda::simt::atomic_add(to, value);
}

// CUDA returns the vector that was there before. The kernels do not need it.
[[gnu::always_inline]] inline void atomicAdd(float2* to, float2 value, SimtLine line = SimtLine::current()) {
  cppcuda::simt::atomic_add(reinterpret_cast<float*>(to), &value.x, 2, line);
}
[[gnu::always_inline]] inline void atomicAdd(float4* to, float4 value, SimtLine line = SimtLine::current()) {
  cppcuda::simt::atomic_add(reinterpret_cast<float*>(to), &value.x, 4, line);
}

// CUDA has shuffles for these types only; a template would accept types that nvcc rejects.
#define SIMT_SHUFFLES(T)                                                                                             \
  inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, SimtLine line = SimtLine::current()) {      \
    return cppcuda::simt::shuffle({"__shfl_sync", mask, width, line}, value, lane);                                  \
  }                                                                                                                  \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,                                    \
                          SimtLine line = SimtLine::current()) {                                                     \
    return cppcuda::simt::shuffle({"__shfl_up_sync", mask, width, line}, value, static_cast<int>(delta));            \
  }                                                                                                                  \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,                                  \
                            SimtLine line = SimtLine::current()) {                                                   \
    return cppcuda::simt::shuffle({"__shfl_down_sync", mask, width, line}, value, static_cast<int>(delta));          \
  }                                                                                                                  \
  inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, SimtLine line = SimtLine::current()) { \
    return cppcuda::simt::shuffle({"__shfl_xor_sync", mask, width, line}, value, lanes);                             \
  }
SIMT_SHUFFLES(int)
SIMT_SHUFFLES(unsigned)
SIMT_SHUFFLES(long)
SIMT_SHUFFLES(unsigned long)
SIMT_SHUFFLES(long long)
SIMT_SHUFFLES(unsigned long long)
SIMT_SHUFFLES(float)
SIMT_SHUFFLES(double)
SIMT_SHUFFLES(__half)
SIMT_SHUFFLES(__half2)
SIMT_SHUFFLES(__nv_bfloat16)
SIMT_SHUFFLES(__nv_bfloat162)
#undef SIMT_SHUFFLES

// Loads and stores with a cache hint, for the types for which CUDA has them. The hint has no effect here, but these
// instructions can access global memory only.
#define SIMT_LOAD(name, T)                                            \
  inline T name(const T* from, SimtLine line = SimtLine::current()) { \
    cppcuda::simt::check_global(#name, from, sizeof(T), line);        \
    return *from;                                                     \
  }
#define SIMT_STORE(name, T)                                               \
  inline void name(T* to, T value, SimtLine line = SimtLine::current()) { \
    cppcuda::simt::check_global(#name, to, sizeof(T), line);              \
    *to = value;                                                          \
  }
#define SIMT_ACCESS(T) \
  SIMT_LOAD(__ldg, T)  \
  SIMT_LOAD(__ldcg, T) \
  SIMT_LOAD(__ldca, T) \
  SIMT_LOAD(__ldcs, T) SIMT_STORE(__stwb, T) SIMT_STORE(__stcg, T) SIMT_STORE(__stcs, T) SIMT_STORE(__stwt, T)
SIMT_ACCESS(char)
SIMT_ACCESS(signed char)
SIMT_ACCESS(unsigned char)
SIMT_ACCESS(short)
SIMT_ACCESS(unsigned short)
SIMT_ACCESS(int)
SIMT_ACCESS(unsigned)
SIMT_ACCESS(long)
SIMT_ACCESS(unsigned long)
SIMT_ACCESS(long long)
SIMT_ACCESS(unsigned long long)
SIMT_ACCESS(float)
SIMT_ACCESS(double)
SIMT_ACCESS(char2)
SIMT_ACCESS(char4)
SIMT_ACCESS(uchar2)
SIMT_ACCESS(uchar4)
SIMT_ACCESS(short2)
SIMT_ACCESS(short4)
SIMT_ACCESS(ushort2)
SIMT_ACCESS(ushort4)
SIMT_ACCESS(int2)
SIMT_ACCESS(int4)
SIMT_ACCESS(uint2)
SIMT_ACCESS(uint4)
SIMT_ACCESS(longlong2)
SIMT_ACCESS(ulonglong2)
SIMT_ACCESS(float2)
SIMT_ACCESS(float4)
SIMT_ACCESS(double2)
#undef SIMT_ACCESS
#undef SIMT_STORE
#undef SIMT_LOAD
