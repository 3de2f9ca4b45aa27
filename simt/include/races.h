#pragma once

// Finds data races: two accesses to the same memory by different threads, one of them a write, that neither a
// __syncthreads nor a __syncwarp orders, nor a grid barrier for different blocks. A shuffle or a vote orders nothing,
// as on hardware. Two calls of atomicAdd are no race, but they order nothing either. What is reported does not depend
// on the order in which the emulator runs the threads. The kernels are compiled as for traffic.h, and their accesses
// are to 2 bytes or more.

#include <cstddef>

namespace cppcuda::simt {

// Whether the launches that follow are checked; at first, whether $CPPCUDA_SIMT_RACES is set. A launch with a race
// throws Error, which names both threads and lines.
void check_races(bool on);

// Whether threads are preempted in the launches that follow; at first, whether $CPPCUDA_SIMT_PREEMPT is set. A thread
// then yields with probability 1/50 before an access of device code to global or shared memory, and not only where it
// waits, so that threads interleave between barriers.
void preempt_threads(bool on);

enum class AccessKind { read, write, atomic };

// What traffic.cpp calls for each access of device code.
void check_access(const void* address, size_t bytes, AccessKind kind, const void* code);

}  // namespace cppcuda::simt
