#pragma once

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Prefetches a line of global memory into the L2 cache.
__device__ inline void prefetch(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
