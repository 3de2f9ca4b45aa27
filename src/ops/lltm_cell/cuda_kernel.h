#pragma once

#include "core/cuda_stream.h"
#include "ops/lltm_cell/params.h"

namespace cppcuda::ops::lltm_cell {

template <class T, class C>
struct CudaKernel {
  static void forward(const ForwardParams<T, C>& p, core::CudaStream& stream);
  static void backward(const BackwardParams<T, C>& p, core::CudaStream& stream);
  static void small_forward(const SmallForwardParams<T, C>& p, core::CudaStream& stream);
  static void small_backward(const SmallBackwardParams<T, C>& p, core::CudaStream& stream);
};

}  // namespace cppcuda::ops::lltm_cell
