#pragma once

// The CUDA kernels of an elementwise operator, as pointwise_cuda.h calls them and pointwise_cuda.cuh defines them.

#include "core/cuda_stream.h"
#include "core/pointwise_params.h"

namespace cppcuda::core {

template <class Math, class T>
struct PointwiseCudaKernel {
  static void run(const DenseParams<Math, T>& p, CudaStream& stream);
  static void run(const StridedParams<Math, T>& p, CudaStream& stream);
};

}  // namespace cppcuda::core
