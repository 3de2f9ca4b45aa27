#pragma once

#include "core/pointwise_cpu.h"
#include "core/pointwise_cuda.h"

namespace cppcuda::core {

// An elementwise formula over tensors, on the device that they are on.
template <class Math>
struct DeviceLoop {
  template <class... Inputs>
  static void run(const Tensor& out, const Inputs&... inputs) {
    out.is_cpu() ? CpuLoop<Math>::run(out, inputs...) : CudaLoop<Math>::run(out, inputs...);
  }
};

}  // namespace cppcuda::core
