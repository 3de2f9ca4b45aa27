#pragma once

// Launches of elementwise operators, for an operator's cuda.cu, which puts them into the table:
//
//   const bool added = core::add_pointwise_cuda<ForwardMath, /*inputs*/ 1>();

#include "core/kernel_table.h"
#include "core/launch.cuh"
#include "core/pointwise_kernel.cuh"
#include "core/width.h"

namespace cppcuda::core {

template <class Math, class T, int inputs>
void pointwise_dense(const DenseParams<T, inputs>& p, CudaStream& stream) {
  bool aligned = is_aligned16(p.out, {});
  for (const T* in : p.in) aligned &= is_aligned16(in, {});
  with_width<wide<T>>(aligned, [&](auto n) {
    const auto packs = ceil_div<int64_t>(p.count, n);
    const LaunchShape shape = stride_launch(packs, pointwise_unroll(n * sizeof(T)) * threads_per_block);
    launch(pointwise_dense_kernel<n, Math, T, inputs>, shape, stream, p);
  });
}

template <class Math, class T, int inputs>
void pointwise_strided(const StridedParams<T, inputs>& p, CudaStream& stream) {
  const LaunchShape shape = stride_launch(p.count, strided_unroll * threads_per_block);
  launch(pointwise_strided_kernel<Math, T, inputs>, shape, stream, p);
}

template <class Math, int inputs>
bool add_pointwise_cuda() {
  return for_each_dtype([]<class T>() {
    add_to_table<Math>(&pointwise_dense<Math, T, inputs>);
    add_to_table<Math>(&pointwise_strided<Math, T, inputs>);
  });
}

}  // namespace cppcuda::core
