#pragma once

// Stands for CUDA's header: the part of it that waits for all blocks of a cooperative launch.

#include "emulator.h"

namespace cooperative_groups {

struct grid_group {
  void sync(cppcuda::simt::Line line = cppcuda::simt::Line::current()) const { cppcuda::simt::sync_grid(line); }
};

inline grid_group this_grid() { return {}; }

}  // namespace cooperative_groups
