#pragma once

// Stands for include/cppcuda/kit/cuda/prefetch.cuh.

#include "simt.h"

namespace cppcuda::kit {

inline void prefetch(const void* line, SimtLine at = SimtLine::current()) {
  simt::check_global("prefetch", line, 1, at);
}

}  // namespace cppcuda::kit
