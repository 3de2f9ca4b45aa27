#pragma once

// CPPCUDA_UNROLL(count) unrolls the loop after it, which has at most `count` steps, for host and device.

#if defined(__CUDA_ARCH__)
#define CPPCUDA_UNROLL(count) _Pragma("unroll")
#elif defined(__CUDACC__)  // the host's part of a CUDA file
#define CPPCUDA_UNROLL(count)
#else
#define CPPCUDA_PRAGMA(text) _Pragma(#text)
#define CPPCUDA_UNROLL(count) CPPCUDA_PRAGMA(GCC unroll count)
#endif
