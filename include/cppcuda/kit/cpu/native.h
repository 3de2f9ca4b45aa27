#pragma once

// The vector types of GCC and clang that hold a register of floats or doubles. They exist for every processor; the
// compiler replaces instructions that it lacks.
//
// The files of this folder that kernels include are compiled once per CPU capability (isa.h). Everything in them is
// inlined and is in the namespace of the capability, because other files must not call functions with AVX-512
// instructions.

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "cppcuda/kit/cpu/isa.h"

#define CPPCUDA_INLINE [[gnu::always_inline]] inline
// Marks a kernel, all of whose calls are inlined. (Not under AddressSanitizer, with which gcc takes minutes.)
#if defined(__SANITIZE_ADDRESS__)
#define CPPCUDA_FLATTEN
#else
#define CPPCUDA_FLATTEN [[gnu::flatten]]
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

#if defined(__AVX512F__)
inline constexpr int register_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

// The compiler's vector types of float and double.
template <class A>
struct Native;

template <>
struct Native<float> {
  using Values __attribute__((vector_size(register_bytes))) = float;
  using Bits __attribute__((vector_size(register_bytes))) = uint32_t;
  using Ints __attribute__((vector_size(register_bytes))) = int32_t;
  using Halves __attribute__((vector_size(register_bytes / 2))) = uint16_t;
  using Offsets = Ints;  // an int32_t for each value
};

template <>
struct Native<double> {
  using Values __attribute__((vector_size(register_bytes))) = double;
  using Bits __attribute__((vector_size(register_bytes))) = uint64_t;
  using Ints __attribute__((vector_size(register_bytes))) = int64_t;
  using Halves __attribute__((vector_size(register_bytes / 4))) = uint16_t;
  using Offsets __attribute__((vector_size(register_bytes / 2))) = int32_t;
};

// A value at any address, aligned or not.
template <class V>
using InMemory __attribute__((aligned(1), may_alias)) = V;

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
