#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/ceil_div.h>

#include "core/dtype.h"
#include "core/launch.cuh"
#include "core/pointwise.h"
#include "core/pointwise_kernel.cuh"
#include "core/width.h"

namespace cppcuda::core {

template <class Math>
struct CudaLoop {
  template <class... Inputs>
  static void run(const Tensor& out, const Inputs&... inputs) {
    if (out.numel() == 0) return;
    visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
      are_dense_alike({out, inputs...}) ? dense<T>(out, inputs...) : strided<T>(out, inputs...);
    });
  }

 private:
  template <class T, class... Inputs>
  static void dense(const Tensor& out, const Inputs&... inputs) {
    using Params = DenseParams<T, sizeof...(Inputs)>;
    const Params p{out.mutable_data_ptr<T>(), {inputs.template const_data_ptr<T>()...}, out.numel()};
    bool aligned = is_aligned16(p.out, {});
    for (const T* in : p.in) aligned &= is_aligned16(in, {});
    auto launch_packs = [&](auto n) {
      const auto packs = at::ceil_div<int64_t>(p.count, n);
      const LaunchShape shape = stride_launch(packs, pointwise_unroll(n * sizeof(T)) * threads_per_block);
      launch<Params>(pointwise_dense_kernel<n, Math, T>, shape, out.device(), p);
    };
    with_width<wide<T>>(aligned, launch_packs);
  }

  template <class T, class... Inputs>
  static void strided(const Tensor& out, const Inputs&... inputs) {
    using Params = StridedParams<T, sizeof...(Inputs)>;
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).resize_outputs(false).add_output(out);
    (config.add_const_input(inputs), ...);
    const auto iterator = config.build();  // orders the dims by stride and merges what it can
    TORCH_CHECK(iterator.ndim() <= pointwise_max_dims,
                "cppcuda: elementwise operators on CUDA take tensors of at most ", pointwise_max_dims,
                " dims that cannot be merged, got ", iterator.ndim());
    Params p{.out = out.mutable_data_ptr<T>(),
             .in = {inputs.template const_data_ptr<T>()...},
             .count = out.numel(),
             .dims = iterator.ndim(),
             .sizes = {},
             .out_strides = {},
             .in_strides = {}};
    for (int d = 0; d < p.dims; ++d) {
      const auto stride = [&](int tensor) { return iterator.strides(tensor)[d] / static_cast<int64_t>(sizeof(T)); };
      p.sizes[d] = iterator.shape()[d];
      p.out_strides[d] = stride(0);
      for (int i = 0; i < static_cast<int>(sizeof...(Inputs)); ++i) p.in_strides[i][d] = stride(i + 1);
    }
    const LaunchShape shape = stride_launch(p.count, strided_unroll * threads_per_block);
    launch<Params>(pointwise_strided_kernel<Math, T>, shape, out.device(), p);
  }
};

}  // namespace cppcuda::core
