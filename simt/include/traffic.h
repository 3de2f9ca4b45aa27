#pragma once

// Counts the traffic that loads and stores cause in an SM's L1, which includes shared memory, from the addresses that
// the threads of a warp access together. The kernels are compiled with -fsanitize=thread, so that the compiler calls a
// function for each access; traffic.cpp defines these functions in place of the sanitizer.

#include <functional>

namespace cppcuda::simt {

struct Launch;

struct Traffic {
  double lines = 0;       // 128-byte lines of global memory, summed over the loads and stores of warps
  double bytes = 0;       // of global memory: the same for 32-byte sectors, the parts of lines that are transferred
  double wavefronts = 0;  // of shared memory: one per word that the busiest bank must deliver
};

// The traffic of all kernels that f launches.
Traffic traffic_of(const std::function<void()>& f);

// The bytes of global memory that the blocks of a launch read, those that several blocks read once for each of them:
// the 32-byte sectors that a block reads, times the number of blocks. Runs eight of the blocks, once.
double bytes_read(const Launch& launch, const std::function<void()>& body);

}  // namespace cppcuda::simt
