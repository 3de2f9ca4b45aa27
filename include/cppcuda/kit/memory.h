#pragma once

// Large tensors on the CPU. docs/performance.md has measurements.

#include "cppcuda/kit/op.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// Requests pages of 2 MiB for a large tensor that may be new, before it is first touched, because page faults for 4 KiB
// pages take longer than most operators. Linux only; torch does the same under THP_MEM_ALLOC_ENABLE=1.
// <LIBRARY>_HUGE_PAGES=0 turns it off.
void advise_huge_pages(const Tensor& t);

// The size of the last-level cache, or <LIBRARY>_STREAM_BYTES if it is set; see CpuContext.
int64_t cache_bytes();

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
