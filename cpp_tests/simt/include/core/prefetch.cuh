#pragma once

// Stands for src/core/prefetch.cuh.

#include "simt.h"

namespace cppcuda::core {

inline void prefetch(const void* line, SimtLine at = SimtLine::current()) {
  simt::check_global("prefetch", line, 1, at);
}

}  // namespace cppcuda::core
