#pragma once

// Loops over n values, one register at a time.

#include "cppcuda/kit/cpu/memory.h"
#include "cppcuda/kit/cpu/native.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// f(i, count) for each register of n values; `count` values of it are valid.
template <class V, class F>
CPPCUDA_INLINE void for_vectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + V::lanes <= n; i += V::lanes) f(i, std::integral_constant<int, V::lanes>());
  if (i < n) f(i, n - i);
}

// f(i, registers, count) for groups of `several` registers, then for each remaining register.
template <class V, int several, class F>
CPPCUDA_INLINE void for_groups(int64_t n, F f) {
  constexpr std::integral_constant<int, V::lanes> all;
  constexpr std::integral_constant<int, 1> one;
  int64_t i = 0;
  for (; i + several * V::lanes <= n; i += several * V::lanes) f(i, std::integral_constant<int, several>(), all);
  for (; i + V::lanes <= n; i += V::lanes) f(i, one, all);
  if (i < n) f(i, one, n - i);
}

// Writes f(i, count) to out + i for each register of n values. Nontemporal: the stores bypass the caches; out must be
// aligned to its elements.
template <class V, bool Nontemporal, class T, class F>
CPPCUDA_INLINE void write_vectors(T* out, int64_t n, F f) {
  int64_t i = 0;
  if constexpr (Nontemporal) {
    const uintptr_t beyond = reinterpret_cast<uintptr_t>(out) % V::template nontemporal_alignment<T>;
    if (beyond != 0) {
      i = static_cast<int64_t>((V::template nontemporal_alignment<T> - beyond) / sizeof(T));
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
        Nontemporal ? values[r].store_nontemporal(to) : values[r].store(to);
      }
    }
  };
  // Memory serves long bursts of reads and writes faster. In a cache, where rows are often short, they only cost time.
  if constexpr (Nontemporal) write(std::integral_constant<int, 4>());
  write(std::integral_constant<int, 1>());
  if (i < n) f(i, n - i).store(out + i, n - i);
}

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
