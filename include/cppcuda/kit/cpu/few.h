#pragma once

// A few contiguous floats or doubles, less than a register (vec.h): without the masks of partial loads and stores,
// which delay a load of values that were just stored.

#include "cppcuda/kit/cpu/native.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

template <class A, int count>
struct Few {
  using Values __attribute__((vector_size(count * sizeof(A)))) = A;
  using Unaligned __attribute__((vector_size(count * sizeof(A)), aligned(sizeof(A)), may_alias)) = A;

  Values v;

  CPPCUDA_INLINE static Few load(const A* p) { return {*reinterpret_cast<const Unaligned*>(p)}; }
  CPPCUDA_INLINE void store(A* p) const { *reinterpret_cast<Unaligned*>(p) = v; }

  CPPCUDA_INLINE friend Few operator*(Few a, Few b) { return {a.v * b.v}; }
  // factor * a + b, fused if the processor can.
  CPPCUDA_INLINE friend Few fma(A factor, Few a, Few b) { return {factor * a.v + b.v}; }

  CPPCUDA_INLINE A sum() const {
    A result = v[0];
    for (int i = 1; i < count; ++i) result += v[i];
    return result;
  }
};

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
