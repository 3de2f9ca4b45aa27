#pragma once

#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/elementwise/cpu.h"
#include "cppcuda/kit/elementwise/cuda.h"
#include "cppcuda/kit/kernels.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Runs an elementwise function over tensors, on their device.
template <class Math, class... Inputs>
void run_elementwise(Math math, const Tensor& out, const Inputs&... inputs) {
  out.is_cpu() ? CpuLoop<Math>::run(math, out, inputs...) : CudaLoop<Math>::run(math, out, inputs...);
}

// Call this in a TORCH_LIBRARY_FRAGMENT.
template <class TheFamily>
void implement_elementwise(torch::Library& m, TheFamily family) {
  for_each_operator(
      family,
      [&]<class Definition>() {
        using Ops = ElementwiseOps<Definition>;
        using Math = ElementwiseForward<Definition>;
        implement<typename Ops::Forward, &ForwardKernels<Definition>::template run<Math>>(m);
        implement<typename Ops::InPlace, &InPlaceKernels<Definition>::template run<Math>>(m);
        implement<typename Ops::Out, &OutKernels<Definition>::template run<Math>>(m);
      },
      [&]<class Definition, int Input>() {
        using Backward = typename ElementwiseOps<Definition>::template Backward<Input>;
        implement<Backward, &BackwardKernels<Definition, Input>::template run<ElementwiseBackward<Definition, Input>>>(
            m);
      });
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
