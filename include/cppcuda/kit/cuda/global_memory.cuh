#pragma once

// Instructions for global memory that have no name in C++.

#include <vector_types.h>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Returns an address in global memory. The compiler forgets how it was computed, and adds an index to it with one
// instruction. It would else add the index to the offset, in 64 bits and for each index again.
template <class T>
__device__ T* base_address(T* address) {
  size_t global = __cvta_generic_to_global(address);
  asm("" : "+l"(global));
  return static_cast<T*>(__cvta_global_to_generic(global));
}

// Stores 16 bytes with one instruction. The compiler may split an assignment into a store for each of its parts.
__device__ inline void store16(void* to, uint4 value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
