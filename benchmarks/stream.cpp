// The memory roofline: a loop that reads and writes as an operator does and computes next to nothing. Blocks of `reads`
// cache lines are read, and after each `writes` lines written past the caches, so that no line is read in order to be
// overwritten.
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

using Line = std::int64_t __attribute__((vector_size(64)));

static inline void store(Line* to, const Line& value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<const __m512i&>(value));
#elif defined(__SSE2__)
  for (int i = 0; i < 4; ++i)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, reinterpret_cast<const __m128i*>(&value)[i]);
#else
  *to = value;
#endif
}

// `ahead` is the prefetch distance in lines, 0 for none. Prefetching past the end is harmless.
extern "C" void stream(const Line* from, Line* to, std::int64_t blocks, int reads, int writes, int ahead, int threads) {
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const Line* in = from + block * reads;
      Line sum{};
      for (int i = 0; i < reads; ++i) {
        if (ahead != 0) __builtin_prefetch(in + i + ahead);
        sum += in[i];
      }
      for (int i = 0; i < writes; ++i) store(to + block * writes + i, sum);
    }
#if defined(__SSE2__)
    _mm_sfence();
#endif
  }
}
