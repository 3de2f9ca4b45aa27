#pragma once

#include <utility>

#include "cppcuda/kit/math/host_device.h"

// CPPCUDA_UNROLL(count) unrolls the loop after it, which has at most `count` steps, for host and device.

#if defined(__CUDA_ARCH__)
#define CPPCUDA_UNROLL(count) _Pragma("unroll")
#elif defined(__CUDACC__)  // the host's part of a CUDA file
#define CPPCUDA_UNROLL(count)
#else
#define CPPCUDA_PRAGMA(text) _Pragma(#text)
#define CPPCUDA_UNROLL(count) CPPCUDA_PRAGMA(GCC unroll count)
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Calls f(std::integral_constant<int, I>()) for I from 0 to Count - 1.
template <int Count, class F>
CPPCUDA_HOST_DEVICE void for_constants(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>)
      CPPCUDA_LAMBDA { (f(std::integral_constant<int, I>()), ...); }(std::make_integer_sequence<int, Count>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
