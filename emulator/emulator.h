#pragma once

// Runs CUDA kernels on the CPU: the host code that nvcc compiled, and the PTX that it embedded. docs/kernels.md
// describes what is found. A program that links the emulator in place of CUDA's runtime reads its modes from the
// environment:
//
//   CPPCUDA_EMULATOR_ARCH=90            which PTX of the program runs; by default that of the newest architecture
//   CPPCUDA_EMULATOR_RACES=1            finds data races
//   CPPCUDA_EMULATOR_SCHEDULE=7         warps, and lanes of a warp, run in a random order with this seed
//   CPPCUDA_EMULATOR_APPROX=1           approximate instructions are off within their documented error: by a hash of
//                                       the operand; with 2 and 3 by the whole error upwards, downwards
//   CPPCUDA_EMULATOR_CONTRACT=1         mul and add without a rounding modifier become fma, as ptxas may do
//   CPPCUDA_EMULATOR_GRID_STRIDE=3      a third of the blocks runs; for grid-stride loops, as the kernels of the kit
//   CPPCUDA_EMULATOR_RESIDENT=3         the number of blocks that each of the 16 multiprocessors holds
//   CPPCUDA_EMULATOR_REPLACE="a=>b"     replaces text in the PTX
//   CPPCUDA_EMULATOR_WITHOUT=a.cuh:12   leaves out the barriers of a line, to see whether a test needs them
//   CPPCUDA_EMULATOR_REPORT=file        at the end, a line for each kernel, and the source lines that did not run
//   CPPCUDA_EMULATOR_EVERY_KERNEL=1     the program fails if a kernel was not launched

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>

namespace cppcuda::emulator {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Device memory, aligned as by cudaMalloc and filled with bytes that are NaN in every floating-point type.
void* allocate(size_t bytes);
void release(void* memory);
size_t allocation_count();  // the number of allocations so far, without empty ones

// What kernels did. The traffic in an SM's L1, which includes shared memory, follows from the addresses that the
// threads of a warp access together.
struct Counts {
  uint64_t launches = 0, threads = 0;
  uint64_t instructions = 0, issued = 0;         // of threads, of warps
  uint64_t load_bytes = 0, store_bytes = 0;      // of global memory, that threads asked for
  uint64_t load_sectors = 0, store_sectors = 0;  // 32-byte sectors of global memory, summed over the accesses of warps
  uint64_t lines = 0;                            // the same for 128-byte lines, in which the L1 serves an access
  uint64_t wavefronts = 0;                       // of shared memory: one per word that the busiest bank must deliver

  Counts& operator+=(const Counts& other);
  Counts& operator-=(const Counts& other);
};

// The members of Counts, with their names in a report.
inline constexpr std::pair<uint64_t Counts::*, const char*> counted[] = {{&Counts::launches, "launches"},
                                                                         {&Counts::threads, "threads"},
                                                                         {&Counts::instructions, "instructions"},
                                                                         {&Counts::issued, "issued"},
                                                                         {&Counts::load_bytes, "bytes loaded"},
                                                                         {&Counts::store_bytes, "stored"},
                                                                         {&Counts::load_sectors, "sectors loaded"},
                                                                         {&Counts::store_sectors, "stored"},
                                                                         {&Counts::lines, "lines"},
                                                                         {&Counts::wavefronts, "wavefronts"}};

inline Counts& Counts::operator+=(const Counts& other) {
  for (const auto& [member, name] : counted) this->*member += other.*member;
  return *this;
}
inline Counts& Counts::operator-=(const Counts& other) {
  for (const auto& [member, name] : counted) this->*member -= other.*member;
  return *this;
}

// What the kernels did that f launches.
Counts counts_of(const std::function<void()>& f);

// Whether data races are found in the launches that follow: two accesses to the same memory by different threads, one
// of them a write, that neither a barrier of the block nor a __syncwarp orders. A shuffle or a vote orders nothing, as
// on hardware. Two atomic operations are not a race, but they order nothing either. Kernels of CUDA's libraries (cub,
// thrust) are left out.
void check_races(bool on);

}  // namespace cppcuda::emulator
