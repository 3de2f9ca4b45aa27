#pragma once

#include "core/cuda_stream.h"
#include "ops/upsample_bilinear2d/params.h"

namespace cppcuda::ops::upsample_bilinear2d {

template <class T>
struct CudaKernel {
  static void forward(const Params<T>& p, core::CudaStream& stream);
  static void backward(const Params<T>& p, core::CudaStream& stream);
};

}  // namespace cppcuda::ops::upsample_bilinear2d
