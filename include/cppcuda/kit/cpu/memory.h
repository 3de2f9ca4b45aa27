#pragma once

// Partial loads and stores of registers, non-temporal stores, prefetches.

#include "cppcuda/kit/cpu/native.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// The prefetch distance of loops with non-temporal stores. On the machine of docs/performance.md 8 KiB was some percent
// better than 2 KiB, and 16 KiB no better than 8.
inline constexpr int64_t prefetch_bytes = 8192;

// Prefetches memory that is read later, in one go, because prefetches spread over other work would return later.
CPPCUDA_INLINE void prefetch(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

#if !defined(__AVX512F__)
using Pair __attribute__((vector_size(16))) = uint64_t;

// The first bytes of a vector's 8 or 16, an even number, and zeros. Assembled in words, because a vector load from
// memory whose parts were just stored waits for all of the stores.
template <class V>
CPPCUDA_INLINE V load_bytes(const void* from, int64_t bytes) {
  static_assert(std::endian::native == std::endian::little);
  const char* p = static_cast<const char*>(from);
  const auto word = [&]<class Word>(int64_t at, Word) -> uint64_t {
    return *reinterpret_cast<const InMemory<Word>*>(p + at);
  };
  Pair pair{0, 0};
  if (bytes >= 8) {
    pair[0] = word(0, uint64_t());
    if (bytes > 8) pair[1] = word(bytes - 8, uint64_t()) >> (128 - 8 * bytes);
  } else if (bytes >= 4) {
    pair[0] = word(0, uint32_t()) | word(bytes - 4, uint32_t()) << (8 * bytes - 32);
  } else if (bytes > 0) {
    pair[0] = word(0, uint16_t());
  }
  if constexpr (sizeof(V) == 16) return (V)pair;
  const uint64_t low = pair[0];
  if constexpr (sizeof(V) == 8) return std::bit_cast<V>(low);
}

template <class V>
CPPCUDA_INLINE void store_bytes(void* to, int64_t bytes, V values) {
  char* p = static_cast<char*>(to);
  Pair pair{0, 0};
  if constexpr (sizeof(V) == 16) pair = (Pair)values;
  if constexpr (sizeof(V) == 8) pair[0] = std::bit_cast<uint64_t>(values);
  uint64_t left = pair[0];
  const auto write = [&]<class Word>(Word) {
    *reinterpret_cast<InMemory<Word>*>(p) = static_cast<Word>(left);
    p += sizeof(Word);
    left = sizeof(Word) == 8 ? pair[1] : left >> 8 * sizeof(Word);
  };
  if (bytes >= 8) write(uint64_t());
  if (bytes == 16) write(uint64_t());
  if (bytes & 4) write(uint32_t());
  if (bytes & 2) write(uint16_t());
}
#endif

#if defined(__SSE2__)
template <class V>
CPPCUDA_INLINE void store_bytes_nontemporal(char* p, V values) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) return _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)values);
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) return _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)values);
#endif
  if constexpr (sizeof(V) == 16) return _mm_stream_si128(reinterpret_cast<__m128i*>(p), (__m128i)values);
  if constexpr (sizeof(V) == 8) return _mm_stream_si64(reinterpret_cast<long long*>(p), (long long)values);
}
#endif

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
