#pragma once

// Runs kernels on the CPU, grid by grid and block by block. Each CUDA thread is a fiber (Boost.Context). Mistakes of a
// kernel are errors that name the thread, and not hangs: lanes that diverge around a collective, a barrier that not all
// threads reach, a misaligned access. Threads resume in a random order, drawn from a fixed seed. Every launch is
// repeated in other orders from the same memory, and it is an error if the results do not have the same bits, except
// for the rounding of what atomicAdd sums. AddressSanitizer and UBSan find other invalid accesses.

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

// Device memory with the alignment of cudaMalloc. It has exactly this size, so that AddressSanitizer checks its bounds,
// and is filled with bytes that are NaN in every floating-point type.
void* allocate(size_t bytes);
void release(void* memory);
size_t allocation_count();  // the number of allocations so far, without empty ones

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  bool cooperative = false;  // blocks run concurrently, so that they can wait for each other
  bool grid_stride = false;  // the kernel is a grid-stride loop, so the launch is repeated with fewer blocks
};

// Calls `body` once for each CUDA thread. Throws Error.
void run(const Launch& launch, const std::function<void()>& body);

// Runs a single block, once.
void run_block(const Launch& launch, const std::function<void()>& body, unsigned block);

// Records a launch. When the program exits, the launched kernels are written to $CPPCUDA_SIMT_KERNELS. With
// $CPPCUDA_SIMT_LAUNCHES, each launch is written to that file, and what count_reads returns. Returns whether the kernel
// runs; it does not if its launch is written.
bool record(const void* kernel, const Launch& launch, const std::function<void()>& body);

// Counts the bytes that a launch reads (traffic.h). Null if accesses are not counted.
inline double (*count_reads)(const Launch& launch, const std::function<void()>& body) = nullptr;

// The number of blocks that a device holds at once: of any kernel 48, an eighth of what an H100 holds with three blocks
// on each of its multiprocessors, so that small tests have launches of many blocks. With $CPPCUDA_SIMT_LAUNCHES it
// comes from the file $CPPCUDA_SIMT_RESIDENT, and a question that this file does not answer is written among the
// launches.
int64_t resident_blocks(const void* kernel, unsigned threads, size_t shared_bytes);

template <class... Params>
void launch(void (*kernel)(Params...), const Launch& launch, std::type_identity_t<Params>... params) {
  const std::function<void()> body = [=] { kernel(params...); };
  if (record(reinterpret_cast<const void*>(kernel), launch, body)) run(launch, body);
}

// Device code calls these functions by their CUDA names (simt.h).

void sync_threads(Line line);
void sync_warp(unsigned mask, Line line);
void sync_grid(Line line);
unsigned ballot(unsigned mask, bool predicate, Line line);
// Checks an access by an instruction for global memory only: it must be aligned and within an allocation.
void check_global(const char* what, const void* address, size_t bytes, Line line);

// Stops the kernel with an error, as a failed assertion on a GPU.
[[noreturn]] void fail(const char* where, const char* message);

// atomicAdd. No other thread runs meanwhile.
float atomic_add(float* to, float value);
double atomic_add(double* to, double value);
// The same for each part of a vector, which must be aligned and in global memory.
void atomic_add(float* to, const float* values, int count, Line line);
// What traffic.cpp does before each of them; `code` is the place of the call. Null if accesses are not counted.
inline void (*before_atomic)(const void* address, size_t bytes, const void* code) = nullptr;

// The block's dynamic shared memory, or the slice of it that belongs to the thread's warp: an allocation of its own. A
// block has one or the other, and all slices have the same size.
void* shared_memory(Line line);
void* warp_memory(size_t bytes, Line line);
// Overwrites a part of shared memory with NaN when the first thread calls this. When every thread has called it, the
// next call is the first one again.
void forget(void* memory, size_t bytes);

// Is told what orders the accesses of threads. With an observer, launches are not repeated. Blocks and threads are
// numbered in one dimension.
struct Observer {
  virtual ~Observer() = default;
  virtual void begin_launch() = 0;
  virtual void begin_block(unsigned block, size_t threads) = 0;
  virtual void end_block(unsigned block) = 0;
  virtual void sync_block(unsigned block) = 0;
  virtual void sync_warp(unsigned block, size_t first_thread, unsigned mask) = 0;
  virtual void sync_grid() = 0;
  virtual void end_launch() = 0;  // may throw
};
inline Observer* observer = nullptr;

// For counting accesses (traffic.h): the kind of memory that an address is in for the running thread, and the number of
// the running launch, starting with 1. The number is 0 outside of device code and while a launch is repeated.
enum class Memory { global, shared, other };
Memory memory_of(const void* address);
uint64_t launch_number();

// What preempt_threads (races.h) sets, and what traffic.cpp calls before each access.
inline bool preempts = false;
void preempt(const void* address);

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
