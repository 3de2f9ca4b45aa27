#pragma once

// Stops a kernel whose arguments are wrong: fail_on_device(where, message), for functions that the host can call too.
//
//   #if defined(CPPCUDA_DEVICE_CODE)
//     kit::fail_on_device("my_op", "indices must be in [0, V)");
//   #else
//     ...
//   #endif
//
// The next call that waits for the GPU returns cudaErrorAssert, and the process can use the GPU no more. assert does
// the same, but not in release builds.

#if defined(__CUDA_ARCH__)
#define CPPCUDA_DEVICE_CODE

#include <cassert>
#if defined(NDEBUG)  // then <cassert> does not declare it
extern "C" __host__ __device__ void __assert_fail(const char* assertion, const char* file, unsigned line,
                                                  const char* function) noexcept __attribute__((__noreturn__));
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

__device__ inline void fail_on_device(const char* where, const char* message) { __assert_fail(message, where, 0, ""); }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
#endif
