#pragma once

// A register of floats or doubles, for the CPU kernels: arithmetic, and loads and stores of any dtype. math.h has its
// functions, loops.h loops over rows of values.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "cppcuda/kit/cpu/conversion.h"
#include "cppcuda/kit/cpu/memory.h"
#include "cppcuda/kit/cpu/native.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// Transposes as many vectors as each has lanes: lane i of vector k becomes lane k of vector i. `size` is for the
// recursion: the two blocks of size * size lanes beside the diagonal of each block of twice that size are exchanged.
template <int lanes, int size = lanes / 2, class Vector>
CPPCUDA_INLINE void transpose(Vector* vectors) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    const auto exchange = [&](int i) {
      const auto a = vectors[i].v, b = vectors[i + size].v;
      vectors[i].v = __builtin_shufflevector(a, b, (I & size ? lanes + I - size : I)...);
      vectors[i + size].v = __builtin_shufflevector(a, b, (I & size ? lanes + I : I + size)...);
    };
    ((I & size ? void() : exchange(I)), ...);
  }(std::make_integer_sequence<int, lanes>());
  if constexpr (size > 1) transpose<lanes, size / 2>(vectors);
}

// Fast: inputs and outputs have 16 bits, so exp and tanh of reduced accuracy are enough.
template <class A, bool Fast>
struct Vec {
  static constexpr int lanes = register_bytes / sizeof(A);
  using Values = typename Native<A>::Values;
  using Bits = typename Native<A>::Bits;
  using Ints = typename Native<A>::Ints;
  using Halves = typename Native<A>::Halves;
  using Offsets = typename Native<A>::Offsets;
  using Convert = Conversion<A, Fast>;

  // The result of a comparison: all bits of a lane are set where it holds.
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
  // a * b + c, fused if the processor can. In a sum of two products the compiler may fuse either product or none, and
  // differently in different loops, so that the bits of a value would depend on its loop.
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
  // Rounded correctly.
  CPPCUDA_INLINE friend Vec sqrt(Vec a) {
#if defined(__AVX512F__)
    if constexpr (sizeof(A) == 4) return Values(_mm512_sqrt_ps(a.v));
    if constexpr (sizeof(A) == 8) return Values(_mm512_sqrt_pd(a.v));
#elif defined(__AVX2__)
    if constexpr (sizeof(A) == 4) return Values(_mm256_sqrt_ps(a.v));
    if constexpr (sizeof(A) == 8) return Values(_mm256_sqrt_pd(a.v));
#else
    for (int i = 0; i < lanes; ++i) a.v[i] = sizeof(A) == 4 ? __builtin_sqrtf(a.v[i]) : __builtin_sqrt(a.v[i]);
    return a;
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

  // T is the dtype in memory. With n, loads only the first n values; the others are zeros.
  template <class T>
  CPPCUDA_INLINE static Vec load(const T* p) {
    if constexpr (sizeof(T) == sizeof(A)) {
      Values values;
      __builtin_memcpy(&values, p, sizeof(values));
      return values;
    } else {
      Halves h;
      __builtin_memcpy(&h, p, sizeof(h));
      return Convert::widen(std::type_identity<T>(), h);
    }
  }

  template <class T>
  CPPCUDA_INLINE static Vec load(const T* p, int64_t n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 8) return Values(_mm512_maskz_loadu_pd(first(n), p));
    if constexpr (sizeof(T) == 4) return Values(_mm512_maskz_loadu_ps(first(n), p));
    if constexpr (sizeof(T) == 2)
      return Convert::widen(std::type_identity<T>(), (Halves)_mm256_maskz_loadu_epi16(first(n), p));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 8) return Values(_mm256_maskload_pd(p, first(n)));
    if constexpr (sizeof(T) == 4) return Values(_mm256_maskload_ps(p, first(n)));
    if constexpr (sizeof(T) == 2) return Convert::widen(std::type_identity<T>(), load_bytes<Halves>(p, 2 * n));
#else
    if constexpr (sizeof(T) == sizeof(A)) return load_bytes<Values>(p, n * sizeof(T));
    if constexpr (sizeof(T) < sizeof(A)) return Convert::widen(std::type_identity<T>(), load_bytes<Halves>(p, 2 * n));
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
    // No memcpy, because gcc 12 keeps a copy of a vector whose address is taken on the stack.
    if constexpr (sizeof(T) == sizeof(A)) {
      *reinterpret_cast<InMemory<Values>*>(p) = v;
    } else {
      *reinterpret_cast<InMemory<Halves>*>(p) = Convert::narrow(std::type_identity<T>(), *this);
    }
  }

  template <class T>
  CPPCUDA_INLINE void store(T* p, int64_t n) const {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 8) return _mm512_mask_storeu_pd(p, first(n), v);
    if constexpr (sizeof(T) == 4) return _mm512_mask_storeu_ps(p, first(n), v);
    if constexpr (sizeof(T) == 2)
      return _mm256_mask_storeu_epi16(p, first(n), (__m256i)Convert::narrow(std::type_identity<T>(), *this));
#elif defined(__AVX2__)
    // Not masked stores, which take about 20 cycles on AMD's processors.
    if constexpr (sizeof(T) == sizeof(A)) {
      if (n == lanes) return store(p);
      __m128i rest = _mm256_castsi256_si128((__m256i)v);
      if (n & (lanes / 2)) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), rest);
        p += lanes / 2;
        rest = _mm256_extracti128_si256((__m256i)v, 1);
      }
      if (n & (lanes / 4)) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p), rest);
        p += lanes / 4;
        rest = _mm_unpackhi_epi64(rest, rest);
      }
      if (lanes == 8 && (n & 1)) _mm_store_ss(reinterpret_cast<float*>(p), (__m128)rest);
    }
    if constexpr (sizeof(T) == 2) return store_bytes(p, 2 * n, Convert::narrow(std::type_identity<T>(), *this));
#else
    if constexpr (sizeof(T) == sizeof(A)) return store_bytes(p, n * sizeof(T), v);
    if constexpr (sizeof(T) < sizeof(A)) return store_bytes(p, 2 * n, Convert::narrow(std::type_identity<T>(), *this));
#endif
  }

  template <class T, int all>
  CPPCUDA_INLINE void store(T* p, std::integral_constant<int, all>) const {
    store(p);
  }

  // Non-temporal stores, to addresses aligned to nontemporal_alignment<T> bytes. Processors without non-temporal stores
  // use plain ones.
  template <class T>
  static constexpr int nontemporal_alignment = lanes * sizeof(T);
  // For contiguous rows of n values.
  template <class T>
  CPPCUDA_INLINE static bool can_store_nontemporal(const T* p, int64_t n) {
    return reinterpret_cast<uintptr_t>(p) % nontemporal_alignment<T> == 0 && n % lanes == 0;
  }
  template <class T>
  CPPCUDA_INLINE void store_nontemporal(T* p) const {
#if defined(__SSE2__)
    if constexpr (sizeof(T) == sizeof(A)) {
      store_bytes_nontemporal(reinterpret_cast<char*>(p), v);
    } else {
      store_bytes_nontemporal(reinterpret_cast<char*>(p), Convert::narrow(std::type_identity<T>(), *this));
    }
#else
    store(p);
#endif
  }

  // from[indices[i]], for indices that do not decrease; `readable` values may be read.
  template <class T>
  CPPCUDA_INLINE static Vec gather(const T* from, const int32_t* indices, [[maybe_unused]] int64_t readable) {
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

  // from[offsets[i]], and zeros where an offset is negative.
  template <class T>
  CPPCUDA_INLINE static Vec gather(const T* from, Offsets offsets) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
      const auto valid = _mm512_cmpge_epi32_mask((__m512i)offsets, __m512i{});
      return _mm512_mask_i32gather_ps(Values{}, valid, (__m512i)offsets, from, 4);
    }
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) {
      return _mm256_mask_i32gather_ps(Values{}, from, (__m256i)offsets, (__m256)(offsets >= 0), 4);
    }
#endif
    const Ints valid = __builtin_convertvector(offsets, Ints) >= 0;
    offsets &= offsets >= 0;
    return [&]<int... I>(std::integer_sequence<int, I...>) -> Vec {
      if constexpr (sizeof(T) == sizeof(A)) {
        return select(Mask{valid}, Vec(Values{from[offsets[I]]...}), 0);
      } else {
        const Halves halves{std::bit_cast<uint16_t>(from[offsets[I]])...};
        return select(Mask{valid}, Convert::widen(std::type_identity<T>(), halves), 0);
      }
    }(std::make_integer_sequence<int, lanes>());
  }

  // Lane i of the result is lane from[i].
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

  // Transposes `lanes` vectors.
  CPPCUDA_INLINE static void transpose(Vec* vectors) { CPPCUDA_ISA::transpose<lanes>(vectors); }

  // The sum over the lanes of each vector, in an order that depends on the number of vectors only. The halves of two
  // vectors are added at a time, until one vector has a sum in each lane.
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

  // n: the number of valid vectors; the rest are treated as zeros.
  template <int group, int n>
  CPPCUDA_INLINE static void add_halves(Vec* vectors) {
    if constexpr (group > 1) {
      constexpr int left = n < group / 2 ? n : group / 2;
      [&]<int... I>(std::integer_sequence<int, I...>) {
        // The lanes of two vectors are numbered consecutively: the first or the second half of each group.
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
};

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
