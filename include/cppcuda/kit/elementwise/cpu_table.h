#pragma once

// Adds the CPU kernels of a family of elementwise operators to the table, for a library's cpu.cpp.

#include "cppcuda/kit/elementwise/cpu_kernel.h"
#include "cppcuda/kit/elementwise/each_math.h"
#include "cppcuda/kit/kernel_table.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

template <class Math, class T>
void run_loop(const LoopParams<Math, T>& p, const CpuContext& cpu) {
  with_isa(cpu.capability, [&]<class Isa>(std::type_identity<Isa>) {
    ElementwiseKernel<Isa, Math, T>::run(p.data, p.steps, p.n, p.nontemporal, p.sums, p.math);
  });
}

}  // namespace detail

template <class TheFamily>
bool add_elementwise_cpu(TheFamily family) {
  detail::for_each_math(
      family, []<class Math>() { for_each_dtype([]<class T>() { add_to_table(&detail::run_loop<Math, T>); }); });
  return true;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
