#include "traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "races.h"
#include "simt.h"

namespace cppcuda::simt {
namespace {

// A load or a store of a warp: the accesses of its lanes at one place in the code, in the same visit of each lane.
struct Access {
  Memory memory;
  size_t bytes;
  std::vector<std::pair<unsigned, uintptr_t>> lanes;  // numbers and addresses
};

// The launch, the block, the thread or warp, the place in the code, and the number of the visit there.
using Key = std::tuple<uint64_t, unsigned, unsigned, const void*, unsigned>;

struct Hash {
  size_t operator()(const Key& key) const {
    const auto& [launch, block, index, code, visit] = key;
    size_t hash = launch;
    for (const uint64_t next : {uint64_t{block}, uint64_t{index}, reinterpret_cast<uint64_t>(code), uint64_t{visit}}) {
      hash = (hash ^ next) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

struct Accesses {
  std::unordered_map<Key, Access, Hash> by_warp;
  std::unordered_map<Key, unsigned, Hash> visits;  // of each thread
};

Accesses* counted = nullptr;

void count(const void* address, size_t bytes, const void* code) {
  if (!counted || launch_number() == 0) return;
  const Memory memory = memory_of(address);
  if (memory == Memory::other) return;
  const unsigned lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  const unsigned visit = counted->visits[{launch_number(), blockIdx.x, threadIdx.x, code, 0}]++;
  Access& access = counted->by_warp[{launch_number(), blockIdx.x, warp, code, visit}];
  access.memory = memory;
  access.bytes = bytes;
  access.lanes.emplace_back(lane, reinterpret_cast<uintptr_t>(address));
}

constexpr uintptr_t sector_bytes = 32;
std::unordered_set<uintptr_t>* sectors_read = nullptr;  // by the running block

void note_read(const void* address, size_t bytes) {
  if (!sectors_read || launch_number() == 0 || memory_of(address) != Memory::global) return;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (uintptr_t i = begin / sector_bytes; i <= (begin + bytes - 1) / sector_bytes; ++i) sectors_read->insert(i);
}

void access(const void* address, size_t bytes, AccessKind kind, const void* code) {
  preempt(address);
  count(address, bytes, code);
  if (kind == AccessKind::read) note_read(address, bytes);
  check_access(address, bytes, kind, code);
}

[[maybe_unused]] const bool atomics_are_counted = [] {
  before_atomic = [](const void* address, size_t bytes, const void* code) {
    access(address, bytes, AccessKind::atomic, code);
  };
  return true;
}();

// The lines, or parts of them, that the lanes access together.
size_t pieces_of(const Access& access, uintptr_t piece_bytes) {
  std::set<uintptr_t> pieces;
  for (const auto& [lane, address] : access.lanes) {
    for (uintptr_t i = address / piece_bytes; i <= (address + access.bytes - 1) / piece_bytes; ++i) pieces.insert(i);
  }
  return pieces.size();
}

// A wavefront serves 128 bytes, so 8 lanes take part at once in 16-byte accesses and 16 lanes in 8-byte accesses.
size_t wavefronts_of(const Access& access) {
  const unsigned lanes = 128 / static_cast<unsigned>(std::clamp<size_t>(access.bytes, 4, 16));
  size_t sum = 0;
  for (unsigned first = 0; first < unsigned{warpSize}; first += lanes) {
    std::map<uintptr_t, std::set<uintptr_t>> words;  // by bank
    for (const auto& [lane, address] : access.lanes) {
      if (lane < first || lane >= first + lanes) continue;
      for (uintptr_t i = address / 4; i <= (address + access.bytes - 1) / 4; ++i) words[i % 32].insert(i);
    }
    size_t max_words = 0;
    for (const auto& [bank, words_of_bank] : words) max_words = std::max(max_words, words_of_bank.size());
    sum += max_words;
  }
  return sum;
}

}  // namespace

Traffic traffic_of(const std::function<void()>& f) {
  Accesses accesses;
  counted = &accesses;
  f();
  counted = nullptr;
  Traffic result;
  for (const auto& [key, access] : accesses.by_warp) {
    if (access.memory == Memory::global) {
      result.lines += static_cast<double>(pieces_of(access, 128));
      result.bytes += static_cast<double>(pieces_of(access, sector_bytes) * sector_bytes);
    } else {
      result.wavefronts += static_cast<double>(wavefronts_of(access));
    }
  }
  return result;
}

double bytes_read(const Launch& launch, const std::function<void()>& body) {
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z,
                 sample = std::min<uint64_t>(blocks, 8);
  size_t sectors = 0;
  for (uint64_t i = 0; i < sample; ++i) {
    std::unordered_set<uintptr_t> read;
    sectors_read = &read;
    run_block(launch, body, static_cast<unsigned>(i * blocks / sample));  // not the last one, which may have less to do
    sectors_read = nullptr;
    sectors += read.size();
  }
  return static_cast<double>(sectors * sector_bytes) * static_cast<double>(blocks) / static_cast<double>(sample);
}

[[maybe_unused]] static const bool reads_are_counted = (count_reads = &bytes_read, true);

}  // namespace cppcuda::simt

// With -fsanitize=thread, the compiler calls these functions.
extern "C" {
using cppcuda::simt::AccessKind;
#define TRAFFIC_ACCESS(name, bytes, kind) \
  void __tsan_##name##bytes(void* p) { cppcuda::simt::access(p, bytes, AccessKind::kind, __builtin_return_address(0)); }
#define TRAFFIC_ACCESSES(bytes)       \
  TRAFFIC_ACCESS(read, bytes, read)   \
  TRAFFIC_ACCESS(write, bytes, write) \
  TRAFFIC_ACCESS(unaligned_read, bytes, read) TRAFFIC_ACCESS(unaligned_write, bytes, write)
TRAFFIC_ACCESSES(1)
TRAFFIC_ACCESSES(2)
TRAFFIC_ACCESSES(4)
TRAFFIC_ACCESSES(8)
TRAFFIC_ACCESSES(16)
void __tsan_read_range(void* p, size_t n) {
  cppcuda::simt::access(p, n, AccessKind::read, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t n) {
  cppcuda::simt::access(p, n, AccessKind::write, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// The atomic operations of the launchers, all sequentially consistent.
#define TRAFFIC_ATOMICS(bits, T)                                                                                    \
  T __tsan_atomic##bits##_load(const volatile T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }           \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }           \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* e, T v, int, int) {                           \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* e, T v, int, int) {                             \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
  }
TRAFFIC_ATOMICS(8, int8_t)
TRAFFIC_ATOMICS(32, int32_t)
TRAFFIC_ATOMICS(64, int64_t)
}
