#pragma once

#include <string>

namespace cppcuda::kit {

// The stream on which the kernels of a call run. It has no types of torch, which files with kernels do not include, nor
// of CUDA.
struct CudaStream {
  int device;
  void* handle;       // the cudaStream_t
  std::string error;  // the CUDA runtime's message for the first launch that failed
};

}  // namespace cppcuda::kit
