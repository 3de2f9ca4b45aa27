#pragma once

// How the CPU ops treat large tensors. docs/performance.md has what each of these is worth.

#include "core/op.h"

namespace cppcuda::core {

// Has the pages of a large new tensor made in the size of 2 MiB, when they are first touched; in that of 4 KiB making them
// takes longer than most ops do. On Linux, as torch does under THP_MEM_ALLOC_ENABLE=1. CPPCUDA_HUGE_PAGES=0 turns it off.
void advise_huge_pages(const Tensor& t);

// Whether what an op reads and writes does not fit into the last-level cache, so that its results are written past it: a
// plain store first reads the line that it overwrites. CPPCUDA_STREAM_BYTES is another limit.
bool exceeds_cache(int64_t bytes);

}  // namespace cppcuda::core
