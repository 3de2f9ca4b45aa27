#pragma once

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The block's dynamic shared memory, which has LaunchShape::shared_bytes. One array serves all types, because extern
// arrays of different types in two instantiations of a template would clash.
template <class T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

// Tells the emulator about a part of shared memory: registers that nothing reads.
#ifdef CPPCUDA_EMULATED
#define CPPCUDA_TELL_EMULATOR(what, memory, bytes)                                    \
  asm volatile("{.reg .b64 emulator_" what ", emulator_bytes; mov.b64 emulator_" what \
               ", %0; mov.b64 emulator_"                                              \
               "bytes, %1;}" ::"l"(memory),                                           \
               "l"(bytes))
#else
#define CPPCUDA_TELL_EMULATOR(what, memory, bytes)
#endif

// The warp's own slice of that memory, `count` values. All warps of a block must take slices of the same size, and the
// block must not call shared_memory too. Only for one-dimensional blocks. The emulator finds accesses to other slices.
template <class T>
__device__ T* warp_memory(int count) {
  T* slice = shared_memory<T>() + threadIdx.x / 32 * count;
  CPPCUDA_TELL_EMULATOR("slice", slice, count * sizeof(T));
  return slice;
}

// Nothing reads again what is in this part of shared memory. All threads that use it call this, after a barrier and
// before they write to it again. The emulator overwrites it with NaN, so that a value that is read by mistake shows.
template <class T>
__device__ void forget([[maybe_unused]] T* memory, [[maybe_unused]] int count) {
  CPPCUDA_TELL_EMULATOR("forget", memory, count * sizeof(T));
}

#undef CPPCUDA_TELL_EMULATOR

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
