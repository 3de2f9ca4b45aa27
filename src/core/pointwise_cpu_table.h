#pragma once

// Puts the CPU kernels of an elementwise operator into the table, for an operator's cpu.cpp.

#include "core/kernel_table.h"
#include "core/pointwise_cpu_kernel.h"

namespace cppcuda::core {

template <class Math, int inputs>
bool add_pointwise_cpu() {
  return for_each_dtype([]<class T>() {
    add_to_table<Math>(
        Kernel<LoopParams<T, inputs>, const CpuContext>([](const LoopParams<T, inputs>& p, const CpuContext& cpu) {
          with_isa(cpu.capability, [&]<class Isa>(std::type_identity<Isa>) {
            PointwiseKernel<Isa, Math, inputs>::run(std::type_identity<T>(), p.data, p.steps, p.n, p.stream);
          });
        }));
  });
}

}  // namespace cppcuda::core
