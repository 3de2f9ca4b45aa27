#pragma once

// N values that are loaded and stored with one instruction when they take up to 16 bytes.

#include <c10/macros/Macros.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace cppcuda::core {

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

template <int N, class T>
C10_HOST_DEVICE Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, class T>
C10_HOST_DEVICE void store(T* to, const Pack<T, N>& pack) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(pack) == 16) {
    // As one value: the compiler may store a struct of 16-bit members in pieces.
    *reinterpret_cast<uint4*>(to) = __builtin_bit_cast(uint4, pack);
    return;
  }
#endif
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Values `index` .. index + N - 1 of a row whose values are `step` apart. N > 1 needs a step of 1 and an aligned address.
template <int N, class T>
C10_HOST_DEVICE Pack<T, N> load_strided(const T* row, int64_t index, int64_t step) {
  if constexpr (N > 1) {
    return load<N>(row + index);
  } else {
    return {row[index * step]};
  }
}

// Values per 16-byte access.
template <class T>
inline constexpr int wide = 16 / sizeof(T);

// Calls f(std::integral_constant<int, n>) with n = N when the memory allows packs, else with n = 1.
template <int N, class F>
void with_width(bool packs, F f) {
  packs ? f(std::integral_constant<int, N>{}) : f(std::integral_constant<int, 1>{});
}

// Whether a pointer and the strides (in elements) that lead from it stay on 16-byte boundaries.
template <class T>
bool is_aligned16(const T* pointer, std::initializer_list<int64_t> strides) {
  bool aligned = reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  for (const int64_t s : strides) aligned &= s * static_cast<int64_t>(sizeof(T)) % 16 == 0;
  return aligned;
}

}  // namespace cppcuda::core
