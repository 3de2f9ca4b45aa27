#pragma once

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The block's dynamic shared memory, which has LaunchShape::shared_bytes. One array serves all types, because extern
// arrays of different types in two instantiations of a template would clash.
template <class T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

// The warp's own part of that memory: `count` values, as many for each warp. Blocks have one dimension.
template <class T>
__device__ T* warp_memory(int count) {
  return shared_memory<T>() + threadIdx.x / 32 * count;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
