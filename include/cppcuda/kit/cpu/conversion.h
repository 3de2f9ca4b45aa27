#pragma once

// Converts Half and BFloat16 to float and back, a register at a time. Narrowing rounds to nearest even.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "cppcuda/kit/cpu/native.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

template <class A, bool Fast = false>
struct Vec;  // vec.h

template <class A, bool Fast>
struct Conversion {
  using V = Vec<A, Fast>;
  using Values = typename Native<A>::Values;
  using Bits = typename Native<A>::Bits;
  using Halves = typename Native<A>::Halves;

  // 16 bits to 32 and back. (gcc 12 splits __builtin_convertvector for 32 and 64 bytes.)
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

  CPPCUDA_INLINE static V widen(std::type_identity<c10::BFloat16>, Halves h) { return V::of_bits(extended(h) << 16); }

  CPPCUDA_INLINE static Halves narrow(std::type_identity<c10::BFloat16>, V x) {
    const Bits b = x.bits(), nan = Bits{} + 0x7FC00000;
    Bits rounded = b + 0x7FFF + (b >> 16 & 1);
    // The addition may turn a NaN into another value, but not a NaN that was widened from 16 bits, whose low bits are
    // 0.
    if (!Fast) rounded = x.v == x.v ? rounded : nan;
#if defined(__AVX512BW__)
    using Indices __attribute__((vector_size(64))) = uint16_t;
    const __m512i odd = (__m512i)(Indices{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31});
    return (Halves)_mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, (__m512i)rounded));
#else
    return truncated(rounded >> 16);
#endif
  }

#if defined(__AVX512F__)
  CPPCUDA_INLINE static V widen(std::type_identity<c10::Half>, Halves h) { return Values(_mm512_cvtph_ps((__m256i)h)); }
  CPPCUDA_INLINE static Halves narrow(std::type_identity<c10::Half>, V x) {
    return std::bit_cast<Halves>(_mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#elif defined(__F16C__)
  CPPCUDA_INLINE static V widen(std::type_identity<c10::Half>, Halves h) { return Values(_mm256_cvtph_ps((__m128i)h)); }
  CPPCUDA_INLINE static Halves narrow(std::type_identity<c10::Half>, V x) {
    return std::bit_cast<Halves>(_mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#else
  // The bits of a half, shifted to a float's exponent, are its value times 2^-112, subnormal or not.
  CPPCUDA_INLINE static V widen(std::type_identity<c10::Half>, Halves h) {
    const Bits b = extended(h), magnitude = (b & 0x7FFF) << 13;
    const V scaled = V::of_bits(magnitude) * V(0x1p112F);
    const Bits special = magnitude | 0x7F800000;  // infinity and NaN
    return V::of_bits((magnitude >= (0x7C00u << 13) ? special : scaled.bits()) | (b & 0x8000) << 16);
  }

  // Adding a power of two whose last digit is that of the half rounds as the half does.
  CPPCUDA_INLINE static Halves narrow(std::type_identity<c10::Half>, V x) {
    const V a = abs(x);
    // Subnormal halves are multiples of 2^-24, the weight of the last bit of 0.5.
    const Bits small = (a + V(0.5F)).bits() - 0x3F000000;
    const Bits b = a.bits(), normal = (b + 0xFFF + (b >> 13 & 1) - (112u << 23)) >> 13;
    Bits h = b < (113u << 23) ? small : normal;
    h = b >= 0x477FF000 ? Bits{} + 0x7C00 : h;  // rounds to 65536 or more
    h = x.v == x.v ? h : Bits{} + 0x7E00;
    return truncated(h | (x.bits() >> 16 & 0x8000));
  }
#endif
};

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
