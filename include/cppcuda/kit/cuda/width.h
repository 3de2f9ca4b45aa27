#pragma once

// The number of values that a kernel loads and stores at once, which its launcher chooses.

#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The number of values in a pack, which is an aligned 16-byte access.
template <class T>
inline constexpr int pack_size = 16 / sizeof(T);

// Calls f(std::integral_constant<int, n>) with n = N when the memory allows packs, else with n = 1.
template <int N, class F>
void with_width(bool packs, F f) {
  packs ? f(std::integral_constant<int, N>{}) : f(std::integral_constant<int, 1>{});
}

// Whether a pointer, and all addresses that the strides (in elements) lead to, are aligned to this many bytes.
template <class T>
bool is_aligned(const T* pointer, std::initializer_list<int64_t> strides, int bytes) {
  bool aligned = reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
  for (const int64_t s : strides) aligned &= s * static_cast<int64_t>(sizeof(T)) % bytes == 0;
  return aligned;
}

template <class T>
bool is_aligned16(const T* pointer, std::initializer_list<int64_t> strides) {
  return is_aligned(pointer, strides, 16);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
