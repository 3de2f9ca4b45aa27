#pragma once

// Elementwise operators on the CPU: the conversion from tensors to LoopParams.

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/elementwise/cpu_kernel.h"
#include "cppcuda/kit/kernels.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class Math>
struct CpuLoop {
  template <class... Inputs>
  static void run(Math math, const Tensor& out, const Inputs&... inputs) {
    visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
      const auto kernel = [math](char* const* data, const int64_t* steps, int64_t n, bool nontemporal) {
        run_with(LoopParams<Math, T>{data, steps, n, nontemporal, math}, cpu_context());
      };
      are_dense_alike({out, inputs...}) ? dense(kernel, out, inputs...) : strided(kernel, out, inputs...);
    });
  }

 private:
  template <class Kernel, class... Inputs>
  static void dense(Kernel kernel, const Tensor& out, const Inputs&... inputs) {
    constexpr size_t tensors = sizeof...(Inputs) + 1;
    const int64_t size = out.element_size();
    const bool nontemporal = cpu_context().exceeds_cache(tensors * out.nbytes());
    // The loop writes only to the first tensor.
    const std::array<char*, tensors> first{static_cast<char*>(out.mutable_data_ptr()),
                                           const_cast<char*>(static_cast<const char*>(inputs.const_data_ptr()))...};
    std::array<int64_t, tensors> steps;
    steps.fill(size);
    at::parallel_for(0, out.numel(), grain_size, [&](int64_t begin, int64_t end) {
      auto data = first;
      for (char*& d : data) d += begin * size;
      kernel(data.data(), steps.data(), end - begin, nontemporal);
    });
  }

  template <class Kernel, class... Inputs>
  static void strided(Kernel kernel, const Tensor& out, const Inputs&... inputs) {
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).resize_outputs(false).add_output(out);
    (config.add_const_input(inputs), ...);
    auto iterator = config.build();
    // data[0] and steps[0] belong to out. The steps of the outer loop follow those of the inner loop.
    auto loop = [&](char** data, const int64_t* steps, int64_t inner, int64_t outer) {
      constexpr size_t tensors = sizeof...(Inputs) + 1;
      for (int64_t j = 0; j < outer; ++j) {
        kernel(data, steps, inner, false);
        for (size_t t = 0; t < tensors; ++t) data[t] += steps[tensors + t];
      }
    };
    iterator.for_each(loop, grain_size);
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
