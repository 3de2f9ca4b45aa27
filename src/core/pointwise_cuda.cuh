#pragma once

// Launches of elementwise operators, for an operator's cuda.cu, which instantiates them for its formulas and each
// dtype:
//
//   template struct core::PointwiseCudaKernel<ForwardMath, float, /*inputs*/ 1>;

#include "core/launch.cuh"
#include "core/pointwise_cuda_kernel.h"
#include "core/pointwise_kernel.cuh"
#include "core/width.h"

namespace cppcuda::core {

template <class Math, class T, int inputs>
void PointwiseCudaKernel<Math, T, inputs>::run(const DenseParams<T, inputs>& p, CudaStream& stream) {
  bool aligned = is_aligned16(p.out, {});
  for (const T* in : p.in) aligned &= is_aligned16(in, {});
  with_width<wide<T>>(aligned, [&](auto n) {
    const auto packs = ceil_div<int64_t>(p.count, n);
    const LaunchShape shape = stride_launch(packs, pointwise_unroll(n * sizeof(T)) * threads_per_block);
    launch(pointwise_dense_kernel<n, Math, T, inputs>, shape, stream, p);
  });
}

template <class Math, class T, int inputs>
void PointwiseCudaKernel<Math, T, inputs>::run(const StridedParams<T, inputs>& p, CudaStream& stream) {
  const LaunchShape shape = stride_launch(p.count, strided_unroll * threads_per_block);
  launch(pointwise_strided_kernel<Math, T, inputs>, shape, stream, p);
}

}  // namespace cppcuda::core
