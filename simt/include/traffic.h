#pragma once

// Counts how much of an SM's L1, which includes shared memory, loads and stores take, from the addresses that the
// threads of a warp access together. The kernels are compiled with -fsanitize=thread: the compiler then calls a
// function for each access, which traffic.cpp defines instead of that sanitizer.

#include <functional>

namespace cppcuda::simt {

struct Traffic {
  double lines = 0;       // 128-byte lines of global memory, summed over the loads and stores of warps
  double wavefronts = 0;  // of shared memory: one per word that the busiest bank must deliver
};

// The traffic of all kernels that f launches.
Traffic traffic_of(const std::function<void()>& f);

}  // namespace cppcuda::simt
