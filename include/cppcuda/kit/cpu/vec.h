#pragma once

// A register full of floats or doubles, for the CPU kernels, which are compiled once per capability of the processor
// (isa.h). On the vector types of GCC and clang: they exist on every processor, and what it lacks the compiler
// replaces.
//
// Everything here is inlined, and lies in the namespace of the capability: a function with AVX-512 instructions must
// not be what another file calls.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "cppcuda/kit/cpu/isa.h"

#define CPPCUDA_INLINE [[gnu::always_inline]] inline
// A kernel, whose calls are all inlined. (Not under AddressSanitizer: gcc then takes minutes.)
#if defined(__SANITIZE_ADDRESS__)
#define CPPCUDA_FLATTEN
#else
#define CPPCUDA_FLATTEN [[gnu::flatten]]
#endif

namespace cppcuda::kit {
namespace CPPCUDA_ISA {

#if defined(__AVX512F__)
inline constexpr int register_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

// How far ahead of a loop that streams its inputs are asked for. On the machine of docs/performance.md 8 KiB were some
// percent better than 2 KiB, and 16 KiB no better than 8.
inline constexpr int64_t prefetch_bytes = 8192;

// The compiler's types, of float and double.
template <class A>
struct Native;

template <>
struct Native<float> {
  using Values __attribute__((vector_size(register_bytes))) = float;
  using Bits __attribute__((vector_size(register_bytes))) = uint32_t;
  using Ints __attribute__((vector_size(register_bytes))) = int32_t;
  using Halves __attribute__((vector_size(register_bytes / 2))) = uint16_t;
};

template <>
struct Native<double> {
  using Values __attribute__((vector_size(register_bytes))) = double;
  using Bits __attribute__((vector_size(register_bytes))) = uint64_t;
  using Ints __attribute__((vector_size(register_bytes))) = int64_t;
  using Halves __attribute__((vector_size(register_bytes / 4))) = uint16_t;
};

// Coarse: inputs and outputs have 16 bits, so exp and tanh of reduced accuracy are enough.
template <class A, bool Coarse = false>
struct Vec {
  static constexpr int lanes = register_bytes / sizeof(A);
  using Values = typename Native<A>::Values;
  using Bits = typename Native<A>::Bits;
  using Ints = typename Native<A>::Ints;
  using Halves = typename Native<A>::Halves;

  // Anywhere.
  template <class V>
  using InMemory __attribute__((aligned(1), may_alias)) = V;

  // All bits set where something holds.
  struct Mask {
    Ints lanes;
  };

  Values v;

  Vec() = default;
  CPPCUDA_INLINE Vec(Values values) : v(values) {}
  CPPCUDA_INLINE Vec(A all) : v(all - Values{}) {}

  CPPCUDA_INLINE static Vec of_bits(Bits bits) { return std::bit_cast<Values>(bits); }
  CPPCUDA_INLINE Bits bits() const { return std::bit_cast<Bits>(v); }
  CPPCUDA_INLINE Ints ints() const { return std::bit_cast<Ints>(v); }

  CPPCUDA_INLINE Vec operator-() const { return -v; }
  CPPCUDA_INLINE friend Vec operator+(Vec a, Vec b) { return a.v + b.v; }
  CPPCUDA_INLINE friend Vec operator-(Vec a, Vec b) { return a.v - b.v; }
  CPPCUDA_INLINE friend Vec operator*(Vec a, Vec b) { return a.v * b.v; }
  CPPCUDA_INLINE friend Vec operator/(Vec a, Vec b) { return a.v / b.v; }
  CPPCUDA_INLINE Vec& operator+=(Vec b) { return *this = *this + b; }
  // a * b + c, fused where the processor can. Of a sum of two products the compiler fuses either, or none, and not the
  // same wherever the code stands: bits would depend on which loop a value is in.
  CPPCUDA_INLINE friend Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    if constexpr (sizeof(A) == 4) return Values(_mm512_fmadd_ps(a.v, b.v, c.v));
    if constexpr (sizeof(A) == 8) return Values(_mm512_fmadd_pd(a.v, b.v, c.v));
#elif defined(__FMA__)
    if constexpr (sizeof(A) == 4) return Values(_mm256_fmadd_ps(a.v, b.v, c.v));
    if constexpr (sizeof(A) == 8) return Values(_mm256_fmadd_pd(a.v, b.v, c.v));
#else
    return a * b + c;
#endif
  }
  CPPCUDA_INLINE friend Mask operator<(Vec a, Vec b) { return {a.v < b.v}; }
  CPPCUDA_INLINE friend Mask operator<=(Vec a, Vec b) { return {a.v <= b.v}; }
  CPPCUDA_INLINE friend Mask operator==(Vec a, Vec b) { return {a.v == b.v}; }
  CPPCUDA_INLINE friend Mask operator>(Vec a, Vec b) { return b < a; }

  CPPCUDA_INLINE friend Vec select(Mask m, Vec a, Vec b) { return m.lanes ? a.v : b.v; }
  CPPCUDA_INLINE friend Vec abs(Vec a) { return of_bits(a.bits() & ~sign_bit()); }
  CPPCUDA_INLINE friend Vec copysign(Vec a, Vec sign) {
    return of_bits((a.bits() & ~sign_bit()) | (sign.bits() & sign_bit()));
  }

  // T: the dtype in memory. n: only the first n values, zeros after them.
  template <class T>
  CPPCUDA_INLINE static Vec load(const T* p) {
    if constexpr (sizeof(T) == sizeof(A)) {
      Values values;
      __builtin_memcpy(&values, p, sizeof(values));
      return values;
    } else {
      Halves h;
      __builtin_memcpy(&h, p, sizeof(h));
      return widen(std::type_identity<T>(), h);
    }
  }

  template <class T>
  CPPCUDA_INLINE static Vec load(const T* p, int64_t n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 8) return Values(_mm512_maskz_loadu_pd(first(n), p));
    if constexpr (sizeof(T) == 4) return Values(_mm512_maskz_loadu_ps(first(n), p));
    if constexpr (sizeof(T) == 2) return widen(std::type_identity<T>(), (Halves)_mm256_maskz_loadu_epi16(first(n), p));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 8) return Values(_mm256_maskload_pd(p, first(n)));
    if constexpr (sizeof(T) == 4) return Values(_mm256_maskload_ps(p, first(n)));
    if constexpr (sizeof(T) == 2) return widen(std::type_identity<T>(), load_bytes<Halves>(p, 2 * n));
#else
    if constexpr (sizeof(T) == sizeof(A)) return load_bytes<Values>(p, n * sizeof(T));
    if constexpr (sizeof(T) < sizeof(A)) return widen(std::type_identity<T>(), load_bytes<Halves>(p, 2 * n));
#endif
  }

  template <class T, int all>
  CPPCUDA_INLINE static Vec load(const T* p, std::integral_constant<int, all>) {
    return load(p);
  }

  // Loads every step-th value.
  template <class T>
  CPPCUDA_INLINE static Vec load(const T* p, int64_t step, int64_t n) {
    alignas(register_bytes) unsigned char memory[lanes * sizeof(T)] = {};
    for (int64_t i = 0; i < n; ++i) __builtin_memcpy(memory + i * sizeof(T), p + i * step, sizeof(T));
    return load(reinterpret_cast<const T*>(memory));
  }

  template <class T>
  CPPCUDA_INLINE void store(T* p) const {
    // No memcpy: of a vector whose address is taken gcc 12 keeps a copy on the stack.
    if constexpr (sizeof(T) == sizeof(A)) {
      *reinterpret_cast<InMemory<Values>*>(p) = v;
    } else {
      *reinterpret_cast<InMemory<Halves>*>(p) = narrow(std::type_identity<T>());
    }
  }

  template <class T>
  CPPCUDA_INLINE void store(T* p, int64_t n) const {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 8) return _mm512_mask_storeu_pd(p, first(n), v);
    if constexpr (sizeof(T) == 4) return _mm512_mask_storeu_ps(p, first(n), v);
    if constexpr (sizeof(T) == 2)
      return _mm256_mask_storeu_epi16(p, first(n), (__m256i)narrow(std::type_identity<T>()));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 8) return _mm256_maskstore_pd(p, first(n), v);
    if constexpr (sizeof(T) == 4) return _mm256_maskstore_ps(p, first(n), v);
    if constexpr (sizeof(T) == 2) return store_bytes(p, 2 * n, narrow(std::type_identity<T>()));
#else
    if constexpr (sizeof(T) == sizeof(A)) return store_bytes(p, n * sizeof(T), v);
    if constexpr (sizeof(T) < sizeof(A)) return store_bytes(p, 2 * n, narrow(std::type_identity<T>()));
#endif
  }

  template <class T, int all>
  CPPCUDA_INLINE void store(T* p, std::integral_constant<int, all>) const {
    store(p);
  }

  // Non-temporal stores, to addresses that are multiples of streamed<T> bytes. Processors without them take plain
  // stores.
  template <class T>
  static constexpr int streamed = lanes * sizeof(T);
  // For contiguous rows of n values.
  template <class T>
  CPPCUDA_INLINE static bool can_stream(const T* p, int64_t n) {
    return reinterpret_cast<uintptr_t>(p) % streamed<T> == 0 && n % lanes == 0;
  }
  template <class T>
  CPPCUDA_INLINE void stream(T* p) const {
#if defined(__SSE2__)
    if constexpr (sizeof(T) == sizeof(A)) {
      stream_bytes(reinterpret_cast<char*>(p), v);
    } else {
      stream_bytes(reinterpret_cast<char*>(p), narrow(std::type_identity<T>()));
    }
#else
    store(p);
#endif
  }

  // from[indices[i]], of indices that do not decrease; `readable` values are there.
  template <class T>
  CPPCUDA_INLINE static Vec pick(const T* from, const int32_t* indices, [[maybe_unused]] int64_t readable) {
#if defined(__AVX512F__)
    if constexpr (lanes == 16) {
      const int32_t first = indices[0], span = indices[lanes - 1] - first;
      const __m512i lane = _mm512_sub_epi32(_mm512_loadu_si512(indices), _mm512_set1_epi32(first));
      const int64_t rest = readable - first;
      if (span < lanes) return _mm512_permutexvar_ps(lane, load_at_most(from + first, rest).v);
      if (span < 2 * lanes) {
        const Vec second = load_at_most(from + first + lanes, rest - lanes);
        return _mm512_permutex2var_ps(load(from + first).v, lane, second.v);
      }
    }
#elif defined(__AVX2__)
    if constexpr (lanes == 8) {
      const int32_t first = indices[0];
      const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(indices));
      if (indices[lanes - 1] - first < lanes) {
        const Vec values = load_at_most(from + first, readable - first);
        return _mm256_permutevar8x32_ps(values.v, _mm256_sub_epi32(all, _mm256_set1_epi32(first)));
      }
    }
#endif
    T values[lanes];
    for (int i = 0; i < lanes; ++i) __builtin_memcpy(values + i, from + indices[i], sizeof(T));
    return load(values);
  }

  // lane i: that of number from[i]
  CPPCUDA_INLINE Vec permuted(Ints from) const {
#if defined(__AVX512F__)
    if constexpr (lanes == 16) return _mm512_permutexvar_ps((__m512i)from, v);
    if constexpr (lanes == 8) return _mm512_permutexvar_pd((__m512i)from, v);
#elif defined(__AVX2__)
    if constexpr (lanes == 8) return _mm256_permutevar8x32_ps(v, (__m256i)from);
#endif
    Values result{};
    for (int i = 0; i < lanes; ++i) result[i] = v[from[i]];
    return result;
  }

  // The sum of all lanes of each, in an order that depends on their number only. Halves are added to halves, of two
  // vectors at a time, until there is one vector with a sum in each lane.
  template <int n>
  CPPCUDA_INLINE static void sums(const Vec* vectors, std::integral_constant<int, n>, A* results) {
    constexpr int now = n < lanes ? n : lanes;
    Vec each[now];
    for (int i = 0; i < now; ++i) each[i] = vectors[i];
    add_halves<lanes, now>(each);
    A values[lanes];
    each[0].store(values);
    for (int i = 0; i < now; ++i) results[i] = values[i];
    if constexpr (n > now) sums(vectors + now, std::integral_constant<int, n - now>(), results + now);
  }

 private:
#if defined(__AVX512F__)
  // The mask of the first n lanes.
  CPPCUDA_INLINE static auto first(int64_t n) {
    return static_cast<std::conditional_t<lanes == 16, __mmask16, __mmask8>>((uint64_t(1) << n) - 1);
  }
#elif defined(__AVX2__)
  CPPCUDA_INLINE static __m256i first(int64_t n) {
    if constexpr (lanes == 4) return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
#endif

#if !defined(__AVX512F__)
  using Pair __attribute__((vector_size(16))) = uint64_t;

  // The first of a vector's 8 or 16 bytes, an even number, and zeros. Put together in words: reading a vector from
  // where its parts were just stored waits for all of them.
  template <class V>
  CPPCUDA_INLINE static V load_bytes(const void* from, int64_t bytes) {
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
  CPPCUDA_INLINE static void store_bytes(void* to, int64_t bytes, V values) {
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

  // n: the number of valid vectors; the rest are treated as zeros.
  template <int group, int n>
  CPPCUDA_INLINE static void add_halves(Vec* vectors) {
    if constexpr (group > 1) {
      constexpr int left = n < group / 2 ? n : group / 2;
      [&]<int... I>(std::integer_sequence<int, I...>) {
        // Lanes of two vectors, numbered through: of each group those of the first or of the second half.
        constexpr auto lane = [](int i, int which) {
          constexpr int half = group / 2;
          return i / group * group + i % half + (i % group < half ? 0 : lanes) + which * half;
        };
        for (int i = 0; i < left; ++i) {
          const Values a = vectors[i].v, b = i + group / 2 < n ? vectors[i + group / 2].v : Values{};
          vectors[i] = __builtin_shufflevector(a, b, lane(I, 0)...) + __builtin_shufflevector(a, b, lane(I, 1)...);
        }
      }(std::make_integer_sequence<int, lanes>());
      add_halves<group / 2, left>(vectors);
    }
  }

  template <class T>
  CPPCUDA_INLINE static Vec load_at_most(const T* p, int64_t n) {
    return n < lanes ? load(p, n) : load(p);
  }

  CPPCUDA_INLINE static Bits sign_bit() { return Vec(A(-0.0)).bits(); }

  // 16 bits to 32 and back. (gcc 12 splits what __builtin_convertvector does with 32 or 64 bytes.)
  CPPCUDA_INLINE static Bits extended(Halves h) {
#if defined(__AVX512F__)
    return (Bits)_mm512_cvtepu16_epi32((__m256i)h);
#elif defined(__AVX2__)
    return (Bits)_mm256_cvtepu16_epi32((__m128i)h);
#else
    return __builtin_convertvector(h, Bits);
#endif
  }

  CPPCUDA_INLINE static Halves truncated(Bits b) {
#if defined(__AVX512F__)
    return (Halves)_mm512_cvtepi32_epi16((__m512i)b);
#elif defined(__AVX2__)
    const __m256i halves = _mm256_packus_epi32((__m256i)b, (__m256i)b);  // twice, in each half of the register
    return (Halves)_mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0b1000));
#else
    return __builtin_convertvector(b, Halves);
#endif
  }

  CPPCUDA_INLINE static Vec widen(std::type_identity<c10::BFloat16>, Halves h) { return of_bits(extended(h) << 16); }

  // Rounded to the nearest, of two to the even one.
  CPPCUDA_INLINE Halves narrow(std::type_identity<c10::BFloat16>) const {
    const Bits b = bits(), nan = Bits{} + 0x7FC00000;
    Bits rounded = b + 0x7FFF + (b >> 16 & 1);
    // Adding may carry a NaN over; not one that comes of 16 bits, whose lower ones are 0.
    if (!Coarse) rounded = v == v ? rounded : nan;
#if defined(__AVX512BW__)
    using Indices __attribute__((vector_size(64))) = uint16_t;
    const __m512i odd = (__m512i)(Indices{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31});
    return (Halves)_mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, (__m512i)rounded));
#else
    return truncated(rounded >> 16);
#endif
  }

#if defined(__AVX512F__)
  CPPCUDA_INLINE static Vec widen(std::type_identity<c10::Half>, Halves h) {
    return Values(_mm512_cvtph_ps((__m256i)h));
  }
  CPPCUDA_INLINE Halves narrow(std::type_identity<c10::Half>) const {
    return std::bit_cast<Halves>(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#elif defined(__F16C__)
  CPPCUDA_INLINE static Vec widen(std::type_identity<c10::Half>, Halves h) {
    return Values(_mm256_cvtph_ps((__m128i)h));
  }
  CPPCUDA_INLINE Halves narrow(std::type_identity<c10::Half>) const {
    return std::bit_cast<Halves>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#else
  // A half's bits, moved to where a float has its exponent, are that float times 2^-112, subnormal or not.
  CPPCUDA_INLINE static Vec widen(std::type_identity<c10::Half>, Halves h) {
    const Bits b = extended(h), magnitude = (b & 0x7FFF) << 13;
    const Vec scaled = of_bits(magnitude) * Vec(0x1p112F);
    const Bits special = magnitude | 0x7F800000;  // infinity and NaN
    return of_bits((magnitude >= (0x7C00u << 13) ? special : scaled.bits()) | (b & 0x8000) << 16);
  }

  // Adding a power of two whose last digit is the last one of the half's rounds as the half does.
  CPPCUDA_INLINE Halves narrow(std::type_identity<c10::Half>) const {
    const Vec a = abs(*this);
    // Subnormal halves are multiples of 2^-24, and 0.5 has that as its last digit.
    const Bits small = (a + Vec(0.5F)).bits() - 0x3F000000;
    const Bits b = a.bits(), normal = (b + 0xFFF + (b >> 13 & 1) - (112u << 23)) >> 13;
    Bits h = b < (113u << 23) ? small : normal;
    h = b >= 0x477FF000 ? Bits{} + 0x7C00 : h;  // rounds to 65536 or more
    h = v == v ? h : Bits{} + 0x7E00;
    return truncated(h | (bits() >> 16 & 0x8000));
  }
#endif

#if defined(__SSE2__)
  template <class V>
  CPPCUDA_INLINE static void stream_bytes(char* p, V values) {
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
};

// Prefetches memory that is read later, all at once: requests spread over other work would come back later.
CPPCUDA_INLINE void prefetch(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

// f(i, count) for each register of n values; `count` values of it are valid.
template <class V, class F>
CPPCUDA_INLINE void for_vectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + V::lanes <= n; i += V::lanes) f(i, std::integral_constant<int, V::lanes>());
  if (i < n) f(i, n - i);
}

// f(i, registers, count) for as many registers at a time as `several`, then for each of the rest.
template <class V, int several, class F>
CPPCUDA_INLINE void for_groups(int64_t n, F f) {
  constexpr std::integral_constant<int, V::lanes> all;
  constexpr std::integral_constant<int, 1> one;
  int64_t i = 0;
  for (; i + several * V::lanes <= n; i += several * V::lanes) f(i, std::integral_constant<int, several>(), all);
  for (; i + V::lanes <= n; i += V::lanes) f(i, one, all);
  if (i < n) f(i, one, n - i);
}

// out[i] = f(i, count) for each register full of n values. Stream: past the caches, of memory aligned to its elements.
template <class V, bool Stream, class T, class F>
CPPCUDA_INLINE void write_vectors(T* out, int64_t n, F f) {
  int64_t i = 0;
  if constexpr (Stream) {
    const uintptr_t beyond = reinterpret_cast<uintptr_t>(out) % V::template streamed<T>;
    if (beyond != 0) {
      i = static_cast<int64_t>((V::template streamed<T> - beyond) / sizeof(T));
      if (i > n) i = n;
      f(0, i).store(out, i);
    }
  }
  const auto write = [&]<int registers>(std::integral_constant<int, registers>) {
    for (; i + registers * V::lanes <= n; i += registers * V::lanes) {
      V values[registers];
      for (int r = 0; r < registers; ++r) values[r] = f(i + r * V::lanes, std::integral_constant<int, V::lanes>());
      for (int r = 0; r < registers; ++r) {
        T* to = out + i + r * V::lanes;
        Stream ? values[r].stream(to) : values[r].store(to);
      }
    }
  };
  // Memory takes long bursts of reads and of writes faster; in a cache, where rows are often short, they only cost.
  if constexpr (Stream) write(std::integral_constant<int, 4>());
  write(std::integral_constant<int, 1>());
  if (i < n) f(i, n - i).store(out + i, n - i);
}

// low <= x <= high; a NaN stays one.
template <class A, bool Coarse>
CPPCUDA_INLINE Vec<A, Coarse> clamp(Vec<A, Coarse> x, Vec<A, Coarse> low, Vec<A, Coarse> high) {
#if defined(__AVX512F__)
  if constexpr (sizeof(A) == 4) return _mm512_min_ps(high.v, _mm512_max_ps(low.v, x.v));
  if constexpr (sizeof(A) == 8) return _mm512_min_pd(high.v, _mm512_max_pd(low.v, x.v));
#else
  x = select(x < low, low, x);
  return select(x > high, high, x);
#endif
}

// exp, expm1 and tanh: x = n ln 2 + r with |r| <= ln 2 / 2 (W. Cody and W. Waite, "Software manual for the elementary
// functions", 1980: ln 2 in two parts, so that n times the first is exact), and the Taylor series of expm1(r).
template <class A>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr int mantissa = 23, bias = 127, terms = 7, coarse_terms = 5;
  static constexpr float ln2_high = 0x1.63p-1F, ln2_low = -0x1.bd0106p-13F;
  static constexpr float round = 0x1.8p23F;  // added and subtracted it leaves an integer
  static constexpr float lowest = -104, highest = 89;
};

template <>
struct ExpConstants<double> {
  static constexpr int mantissa = 52, bias = 1023, terms = 13, coarse_terms = 13;
  static constexpr double ln2_high = 0x1.62e42fp-1, ln2_low = 0x1.df473de6af279p-26;
  static constexpr double round = 0x1.8p52;
  static constexpr double lowest = -746, highest = 710;
};

// exp(x) = 2^n (1 + rest)
template <class A, bool Coarse>
struct Exponential {
  using V = Vec<A, Coarse>;
  using C = ExpConstants<A>;
  typename V::Ints n;
  V whole, rest;  // whole: n

  CPPCUDA_INLINE explicit Exponential(V x) {
    x = clamp(x, V(C::lowest), V(C::highest));
    const V shifted = x * V(A(0x1.71547652b82fep0)) + V(C::round);
    whole = shifted - V(C::round);
    n = shifted.ints() - V(C::round).ints();
    const V r = x - whole * V(C::ln2_high) - whole * V(C::ln2_low);
    constexpr int terms = Coarse ? C::coarse_terms : C::terms;
    // Terms by pairs: half as long a chain of operations as one by one.
    const V r2 = r * r;
    const auto pair = [&](int k) { return V(inverse_factorial(k)) + V(inverse_factorial(k + 1)) * r; };
    V series = pair(terms - 1);
#pragma GCC unroll 16
    for (int k = terms - 3; k > 1; k -= 2) series = series * r2 + pair(k);
    rest = r + r2 * series;
  }

  // 2^m, for m of a normal number.
  CPPCUDA_INLINE static V power_of_2(typename V::Ints m) {
    return V(std::bit_cast<typename V::Values>((m + C::bias) << C::mantissa));
  }

  CPPCUDA_INLINE static constexpr A inverse_factorial(int k) {
    double product = 1;
    for (int i = 2; i <= k; ++i) product *= i;
    return static_cast<A>(1 / product);
  }
};

template <class A, bool Coarse>
CPPCUDA_INLINE Vec<A, Coarse> exp(Vec<A, Coarse> x) {
  using E = Exponential<A, Coarse>;
#if defined(__AVX512F__)
  using V = Vec<A, Coarse>;
  if constexpr (Coarse && sizeof(A) == 4) {
    // 2^floor(t) 2^(f - 1/2), of a minimax polynomial on [0, 1], whose relative error is 7.5e-8. No bounds on x: f is 0
    // where t is infinite.
    const V t = x * V(0x1.715476p0F) + V(0.5F), f = _mm512_reduce_ps(t.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const V low = V(0.70710673F) + V(0.49013324F) * f, middle = V(0.16981425F) + V(0.03947517F) * f;
    const V high = V(0.00635642F) + V(0.00132765F) * f, f2 = f * f;
    return _mm512_scalef_ps((low + f2 * (middle + f2 * high)).v, t.v);
  }
  const E e(x);
  const V sum = e.rest + V(1);
  if constexpr (sizeof(A) == 4) return _mm512_scalef_ps(sum.v, e.whole.v);
  if constexpr (sizeof(A) == 8) return _mm512_scalef_pd(sum.v, e.whole.v);
#else
  const E e(x);
  // In two steps, since 2^n need not be a normal number.
  const auto half = e.n >> 1;
  return (E::power_of_2(half) + E::power_of_2(half) * e.rest) * E::power_of_2(e.n - half);
#endif
}

// exp(x) - 1 for x <= 0, where it keeps its digits near 0.
template <class A, bool Coarse>
CPPCUDA_INLINE Vec<A, Coarse> expm1(Vec<A, Coarse> x) {
  using E = Exponential<A, Coarse>;
  const Vec<A, Coarse> lowest(-A(ExpConstants<A>::mantissa + 3));  // below it is -1
  const E e(select(x < lowest, lowest, x));
  const auto scale = E::power_of_2(e.n);
  return scale * e.rest + (scale - Vec<A, Coarse>(1));
}

template <class A, bool Coarse>
CPPCUDA_INLINE Vec<A, Coarse> tanh(Vec<A, Coarse> x) {
  using V = Vec<A, Coarse>;
  const V e = expm1(V(-2) * abs(x));
  return copysign(e / (e + V(2)), x);
}

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit
