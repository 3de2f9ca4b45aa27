#pragma once

#include <string>

namespace cppcuda::kit {

// Where the kernels of a call run. Files that hold kernels include nothing of torch, so it has neither its types nor
// CUDA's.
struct CudaStream {
  int device;
  void* handle;       // the cudaStream_t
  std::string error;  // what the CUDA runtime says of the first launch that failed
};

}  // namespace cppcuda::kit
