#pragma once

// Launches of elementwise operators, for a library's cuda.cu, which adds the kernels of its family to the table.

#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/cuda/width.h"
#include "cppcuda/kit/elementwise/each_math.h"
#include "cppcuda/kit/elementwise/kernel.cuh"
#include "cppcuda/kit/kernel_table.h"
#include "cppcuda/kit/rows/kernel.cuh"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

template <class Math, class T>
void elementwise_dense(const DenseParams<Math, T>& p, CudaStream& stream) {
  bool aligned = true;
  for (const T* out : p.out) aligned &= is_aligned16(out, {});
  for (const T* in : p.in) aligned &= is_aligned16(in, {});
  with_width<pack_size<T>>(aligned, [&](auto n) {
    const auto packs = ceil_div<int64_t>(p.count, n);
    const LaunchShape shape =
        grid_stride_launch(packs, elementwise_unroll(n * sizeof(T), Math::outputs) * threads_per_block);
    launch(elementwise_dense_kernel<n, Math, T>, shape, stream, p);
  });
}

template <class Math, class T>
void elementwise_strided(const StridedParams<Math, T>& p, CudaStream& stream) {
  const LaunchShape shape = grid_stride_launch(p.count, strided_unroll * threads_per_block);
  launch(elementwise_strided_kernel<Math, T>, shape, stream, p);
}

template <class Math, class T>
void elementwise_points(const PointParams<Math, T>& p, CudaStream& stream) {
  launch(point_kernel<Math, T>, grid_stride_launch(p.count, threads_per_block), stream, p);
}

template <class Math, class T>
void elementwise_rows(const RowParams<Math, T>& p, CudaStream& stream) {
  if (p.math.features <= longest_row_of_warp) {
    launch(row_kernel<warp_threads, Math, T>, grid_stride_launch(p.rows, threads_per_block / warp_threads), stream, p);
  } else {
    launch(row_kernel<threads_per_block, Math, T>, grid_stride_launch(p.rows, 1), stream, p);
  }
}

}  // namespace detail

template <class TheFamily>
bool add_elementwise_cuda(TheFamily family) {
  detail::for_each_math(family, []<class Math>() {
    for_each_dtype([]<class T>() {
      if constexpr (Math::is_of_rows) {
        add_to_table(&detail::elementwise_rows<Math, T>);
      } else if constexpr (Math::is_of_points) {
        add_to_table(&detail::elementwise_points<Math, T>);
      } else {
        add_to_table(&detail::elementwise_dense<Math, T>);
        add_to_table(&detail::elementwise_strided<Math, T>);
      }
    });
  });
  return true;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
