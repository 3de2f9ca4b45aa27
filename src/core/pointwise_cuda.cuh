#pragma once

// Launches of elementwise operators, for a library's cuda.cu, which instantiates them:
//
//   template void core::instantiate_pointwise_cuda(Family);

#include "core/launch.cuh"
#include "core/pointwise_cuda_kernel.h"
#include "core/pointwise_kernel.cuh"
#include "core/pointwise_math.h"
#include "core/width.h"

namespace cppcuda::core {

template <class Math, class T>
[[gnu::used]] void PointwiseCudaKernel<Math, T>::run(const DenseParams<Math, T>& p, CudaStream& stream) {
  bool aligned = is_aligned16(p.out, {});
  for (const T* in : p.in) aligned &= is_aligned16(in, {});
  with_width<wide<T>>(aligned, [&](auto n) {
    const auto packs = ceil_div<int64_t>(p.count, n);
    const LaunchShape shape = stride_launch(packs, pointwise_unroll(n * sizeof(T)) * threads_per_block);
    launch(pointwise_dense_kernel<n, Math, T>, shape, stream, p);
  });
}

template <class Math, class T>
[[gnu::used]] void PointwiseCudaKernel<Math, T>::run(const StridedParams<Math, T>& p, CudaStream& stream) {
  const LaunchShape shape = stride_launch(p.count, strided_unroll * threads_per_block);
  launch(pointwise_strided_kernel<Math, T>, shape, stream, p);
}

template <class TheFamily>
void instantiate_pointwise_cuda(TheFamily family) {
  for_each_math(family, []<class Math>() {
    const auto keep = []<class T>(std::type_identity<T>) {
      using Kernel = PointwiseCudaKernel<Math, T>;
      static_cast<void>(static_cast<void (*)(const DenseParams<Math, T>&, CudaStream&)>(&Kernel::run));
      static_cast<void>(static_cast<void (*)(const StridedParams<Math, T>&, CudaStream&)>(&Kernel::run));
    };
    keep(std::type_identity<double>());
    keep(std::type_identity<float>());
    keep(std::type_identity<c10::Half>());
    keep(std::type_identity<c10::BFloat16>());
  });
}

}  // namespace cppcuda::core
