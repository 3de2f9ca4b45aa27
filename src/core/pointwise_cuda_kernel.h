#pragma once

// The CUDA kernels of an elementwise operator, as pointwise_cuda.h calls them and pointwise_cuda.cuh defines them.

#include "core/cuda_stream.h"
#include "core/pointwise_params.h"

namespace cppcuda::core {

template <class Math, class T, int inputs>
struct PointwiseCudaKernel {
  static void run(const DenseParams<T, inputs>& p, CudaStream& stream);
  static void run(const StridedParams<T, inputs>& p, CudaStream& stream);
};

}  // namespace cppcuda::core
