#pragma once

// CPPCUDA_HOST_DEVICE marks a function of formulas, which runs on the host and on the device: only nvcc knows
// __device__. CPPCUDA_LAMBDA, after the parameters, marks a lambda in one. In the loops of CPU kernels (isa.h), gcc
// keeps values in registers, rather than in memory, if it inlines both before it does anything else. (Not under
// AddressSanitizer, with which that takes minutes.)
#if defined(__CUDACC__)
#define CPPCUDA_HOST_DEVICE __host__ __device__ __forceinline__
#define CPPCUDA_LAMBDA
#elif defined(CPPCUDA_ISA) && !defined(CPPCUDA_COMPILED_ONCE) && !defined(__SANITIZE_ADDRESS__)
#define CPPCUDA_HOST_DEVICE __attribute__((always_inline)) inline
#define CPPCUDA_LAMBDA __attribute__((always_inline))
#else
#define CPPCUDA_HOST_DEVICE inline
#define CPPCUDA_LAMBDA
#endif
