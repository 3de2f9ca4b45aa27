// The memory roofline: a loop with an operator's mix of reads and writes that computes next to nothing. It alternately
// reads `reads` cache lines and writes `writes` lines. Stores are non-temporal, so that no line is read only to be
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

// `distance` is the prefetch distance in lines, 0 for none. Prefetching past the end is harmless.
extern "C" void stream(const Line* from, Line* to, std::int64_t blocks, int reads, int writes, int distance,
                       int threads) {
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const Line* in = from + block * reads;
      Line sum{};
      for (int i = 0; i < reads; ++i) {
        if (distance != 0) __builtin_prefetch(in + i + distance);
        sum += in[i];
      }
      for (int i = 0; i < writes; ++i) store(to + block * writes + i, sum);
    }
#if defined(__SSE2__)
    _mm_sfence();
#endif
  }
}
