#pragma once

// Runs elementwise functions over tensors: the conversion from tensors to the arguments of kernels.

#include <c10/util/FunctionRef.h>

#include <span>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/elementwise/cpu_kernel.h"
#include "cppcuda/kit/elementwise/params.h"
#include "cppcuda/kit/kernels.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// Calls the loop (ElementwiseKernel::run without Math) over the elements of the tensors, of which the first is the
// output, in parallel.
using CpuLoop = void(char* const* data, const int64_t* steps, int64_t n, bool nontemporal);
void run_cpu_loop(TensorRefs tensors, c10::function_ref<CpuLoop> loop);

// Sets the sizes and, for each tensor, the strides of StridedParams. Returns the number of dims.
int set_strides(TensorRefs tensors, Divisor* sizes, std::span<int64_t* const> strides);

// Runs an elementwise function over tensors, on their device.
template <class Math, class... Inputs>
void run_elementwise(Math math, const Tensor& out, const Inputs&... inputs) {
  visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
    if (out.is_cpu()) {
      run_cpu_loop({out, inputs...}, [&](char* const* data, const int64_t* steps, int64_t n, bool nontemporal) {
        run_with(LoopParams<Math, T>{data, steps, n, nontemporal, math}, cpu_context());
      });
    } else if (out.numel() == 0) {
      return;
    } else if (are_dense_alike({out, inputs...})) {
      run(out.device(),
          DenseParams<Math, T>{out.mutable_data_ptr<T>(), {inputs.template const_data_ptr<T>()...}, out.numel(), math});
    } else {
      StridedParams<Math, T> p{.out = out.mutable_data_ptr<T>(),
                               .in = {inputs.template const_data_ptr<T>()...},
                               .count = out.numel(),
                               .dims = 0,
                               .sizes = {},
                               .out_strides = {},
                               .in_strides = {},
                               .math = math};
      int64_t* strides[1 + Math::inputs] = {p.out_strides};
      for (int i = 0; i < Math::inputs; ++i) strides[1 + i] = p.in_strides[i];
      p.dims = set_strides({out, inputs...}, p.sizes, strides);
      run(out.device(), p);
    }
  });
}

}  // namespace detail

// Call this in a TORCH_LIBRARY_FRAGMENT.
template <class TheFamily>
void implement_elementwise(torch::Library& m, TheFamily family) {
  detail::for_each_operator(
      family,
      [&]<class Definition>() {
        using Ops = ElementwiseOps<Definition>;
        using Math = detail::ElementwiseForward<Definition>;
        implement<typename Ops::Forward>(m, TORCH_FN((detail::ForwardKernels<Definition>::template run<Math>)));
        implement<typename Ops::InPlace>(m, TORCH_FN((detail::InPlaceKernels<Definition>::template run<Math>)));
        implement<typename Ops::Out>(m, TORCH_FN((detail::OutKernels<Definition>::template run<Math>)));
      },
      [&]<class Definition, int Input>() {
        using Backward = typename ElementwiseOps<Definition>::template Backward<Input>;
        implement<Backward>(
            m, TORCH_FN((detail::BackwardKernels<Definition, Input>::template run<detail::ElementwiseBackward<Definition, Input>>)));
      });
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
