#pragma once

// How the CPU ops treat large tensors. docs/performance.md has what each of these is worth.

#include "cppcuda/kit/op.h"

namespace cppcuda::kit {

// Asks for pages of 2 MiB for a large new tensor, before it is first touched: page faults for 4 KiB pages take longer
// than most operators. On Linux, as torch does under THP_MEM_ALLOC_ENABLE=1. CPPCUDA_HUGE_PAGES=0 turns it off.
void advise_huge_pages(const Tensor& t);

// The size of the last-level cache, or CPPCUDA_STREAM_BYTES: see CpuContext.
int64_t cache_bytes();

}  // namespace cppcuda::kit
