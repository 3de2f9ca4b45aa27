#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The CPU kernels get these from the library that talks to torch.
struct CpuContext {
  Capability capability;

  // The size of the last-level cache. Operators that read and write more bytes use non-temporal stores, because a plain
  // store first reads the line that it overwrites.
  int64_t cache_bytes;

  // at::parallel_for(0, count, grain_size, ...), where each thread calls call(task, begin, end).
  void (*parallel_for)(int64_t count, int64_t grain_size, const void* task,
                       void (*call)(const void* task, int64_t begin, int64_t end));

  bool exceeds_cache(int64_t bytes) const { return bytes > cache_bytes; }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
