#pragma once

namespace cppcuda::kit {

// The block's dynamic shared memory, LaunchShape::shared_bytes of it. One name for all types: a template that declares
// an array of its own clashes with the next instantiation.
template <class T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

}  // namespace cppcuda::kit
