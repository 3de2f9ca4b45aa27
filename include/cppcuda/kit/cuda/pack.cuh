#pragma once

// A pack is N values that are loaded and stored with one instruction if they take at most 16 bytes.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <type_traits>

#include "cppcuda/kit/cuda/global_memory.cuh"
#include "cppcuda/kit/cuda/width.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

// Value n as a number to compute with. One instruction converts each half of a pair of bfloat16 to float: a shift or a
// mask. The compiler would first move the upper half down.
template <class A, class T, int N>
__device__ A widen(const Pack<T, N>& pack, int n) {
  if constexpr (std::is_same_v<T, c10::BFloat16> && N % 2 == 0) {
    const uint32_t pair = __builtin_bit_cast(Pack<uint32_t, N / 2>, pack).value[n / 2];
    return static_cast<A>(__builtin_bit_cast(float, n % 2 == 0 ? pair << 16 : pair & 0xffff0000u));
  } else {
    return static_cast<A>(pack.value[n]);
  }
}

template <int N, class T>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

// To global memory.
template <int N, class T>
__device__ void store(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) == 16) {
    store16(to, __builtin_bit_cast(uint4, pack));
  } else {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
}

// Adds to values in global memory with atomicAdd. From compute capability 9.0 on, two or four float32 are added by one
// instruction, and must be aligned.
template <int N, class A>
__device__ void add_atomically(A* to, const Pack<A, N>& pack) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr bool is_vector = std::is_same_v<A, float> && (N == 2 || N == 4);
#else
  constexpr bool is_vector = false;
#endif
  if constexpr (is_vector) {
    using Vector = std::conditional_t<N == 2, float2, float4>;
    atomicAdd(reinterpret_cast<Vector*>(to), __builtin_bit_cast(Vector, pack));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) atomicAdd(to + i, pack.value[i]);
  }
}

// Values `index` .. index + N - 1 of a row whose values are `step` apart. N > 1 needs a step of 1 and an aligned
// address.
template <int N, class T>
__device__ Pack<T, N> load_strided(const T* row, int64_t index, int64_t step) {
  if constexpr (N > 1) {
    return load<N>(row + index);
  } else {
    return {row[index * step]};
  }
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
