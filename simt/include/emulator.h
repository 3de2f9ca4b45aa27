#pragma once

// Runs kernels on the CPU, grid by grid, block by block, every CUDA thread a fiber (Boost.Context). What a kernel may
// not do is an error that names the thread, not a hang: lanes that diverge around a collective, a barrier that not all
// reach, a misaligned access. Threads resume in an order that is drawn from a seed: every launch is repeated from the
// same memory in several orders, and other bits are an error. AddressSanitizer and UBSan see the rest.

#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <vector_types.h>

namespace cppcuda::simt {

using Line = std::source_location;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Device memory: aligned as cudaMalloc's, of exactly this size for AddressSanitizer, filled with bytes that are NaN in
// every floating type.
void* allocate(size_t bytes);
void release(void* memory);
size_t allocation_count();  // so far, of more than 0 bytes

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  bool cooperative = false;  // all blocks at once, so that they can wait for each other
  bool strides = false;      // over what the grid does not reach: it is repeated with fewer blocks
};

// `thread` is called once for each thread. Throws Error.
void run(const Launch& launch, const std::function<void()>& thread);

// Writes to the file that the environment names which kernels were launched.
void record(const void* kernel);

template <class... Params>
void launch(void (*kernel)(Params...), const Launch& launch, std::type_identity_t<Params>... params) {
  record(reinterpret_cast<const void*>(kernel));
  run(launch, [=] { kernel(params...); });
}

// The running thread calls these functions through their names in CUDA.

void sync_threads(Line line);
void sync_warp(unsigned mask, Line line);
void sync_grid(Line line);
unsigned ballot(unsigned mask, bool predicate, Line line);
// An access through an instruction that is for global memory only: aligned, and within an allocation.
void check_global(const char* what, const void* address, size_t bytes, Line line);

// The block's dynamic shared memory.
void* shared_memory();

// For what counts accesses (traffic.h): which memory an address is in for the running thread, and the number of the
// launch that runs, from 1 on; 0 outside of device code and while a launch is repeated.
enum class Memory { global, shared, other };
Memory memory_of(const void* address);
uint64_t launch_number();

struct Shuffle {
  const char* name;
  unsigned mask;
  int width;
  Line line;
};

uint64_t shuffle_bits(const Shuffle& call, uint64_t value, int argument);

template <class T>
T shuffle(const Shuffle& call, T value, int argument) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const void*>(&value), sizeof(T));
  bits = shuffle_bits(call, bits, argument);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

}  // namespace cppcuda::simt
