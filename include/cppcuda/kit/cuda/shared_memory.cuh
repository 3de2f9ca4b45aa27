#pragma once

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The block's dynamic shared memory, which has LaunchShape::shared_bytes. One array serves all types, because extern
// arrays of different types in two instantiations of a template would clash.
template <class T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

// The warp's own slice of that memory, `count` values. All warps of a block must take slices of the same size, and the
// block must not call shared_memory too. Only for one-dimensional blocks.
template <class T>
__device__ T* warp_memory(int count) {
  return shared_memory<T>() + threadIdx.x / 32 * count;
}

// Nothing reads again what is in this part of shared memory. All threads that use it call this, after a barrier and
// before they write to it again. The emulator overwrites it with NaN, so that a value that is read by mistake shows.
template <class T>
__device__ void forget(T*, int) {}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
