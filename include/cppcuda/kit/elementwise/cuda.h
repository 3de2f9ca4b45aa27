#pragma once

// Elementwise operators on CUDA: the conversion from tensors to DenseParams or StridedParams.

#include <ATen/TensorIterator.h>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/elementwise/params.h"
#include "cppcuda/kit/kernels.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class Math>
struct CudaLoop {
  template <class... Inputs>
  static void run(Math math, const Tensor& out, const Inputs&... inputs) {
    if (out.numel() == 0) return;
    visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
      const auto run_kernel = [&](const auto& params) { kit::run(out.device(), params); };
      are_dense_alike({out, inputs...}) ? run_kernel(dense<T>(math, out, inputs...))
                                        : run_kernel(strided<T>(math, out, inputs...));
    });
  }

 private:
  template <class T, class... Inputs>
  static auto dense(Math math, const Tensor& out, const Inputs&... inputs) {
    return DenseParams<Math, T>{out.mutable_data_ptr<T>(), {inputs.template const_data_ptr<T>()...}, out.numel(), math};
  }

  template <class T, class... Inputs>
  static auto strided(Math math, const Tensor& out, const Inputs&... inputs) {
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).resize_outputs(false).add_output(out);
    (config.add_const_input(inputs), ...);
    const auto iterator = config.build();  // orders the dims by stride and merges them if possible
    TORCH_CHECK(iterator.ndim() <= elementwise_max_dims, library_name(),
                ": elementwise operators on CUDA take tensors of at most ", elementwise_max_dims,
                " dims that cannot be merged, got ", iterator.ndim());
    StridedParams<Math, T> p{.out = out.mutable_data_ptr<T>(),
                             .in = {inputs.template const_data_ptr<T>()...},
                             .count = out.numel(),
                             .dims = iterator.ndim(),
                             .sizes = {},
                             .out_strides = {},
                             .in_strides = {},
                             .math = math};
    for (int d = 0; d < p.dims; ++d) {
      const auto stride = [&](int tensor) { return iterator.strides(tensor)[d] / static_cast<int64_t>(sizeof(T)); };
      p.sizes[d] = iterator.shape()[d];
      p.out_strides[d] = stride(0);
      for (int i = 0; i < static_cast<int>(sizeof...(Inputs)); ++i) p.in_strides[i][d] = stride(i + 1);
    }
    return p;
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
