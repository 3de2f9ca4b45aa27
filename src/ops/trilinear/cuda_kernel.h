#pragma once

#include "core/cuda_stream.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

template <class T, class P>
struct CudaKernel {
  static void forward(const ForwardParams<T, P>& p, core::CudaStream& stream);
  static void backward(const BackwardParams<T, P>& p, core::CudaStream& stream);
};

}  // namespace cppcuda::ops::trilinear
