#pragma once

#include <string>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The stream in which the kernels of a call run. It has neither torch's types, because files of kernels include nothing
// of torch, nor CUDA's.
struct CudaStream {
  int device;
  void* handle;       // the cudaStream_t
  std::string error;  // the CUDA runtime's message for the first launch that failed
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
