#pragma once

// From torch's side to the kernels: kit::run(device, params) calls the kernel for them.

#include <c10/core/Device.h>
#include <torch/library.h>

#include "cppcuda/kit/current_stream.h"
#include "cppcuda/kit/kernel_table.h"

namespace cppcuda::kit {

// Throws when the loaded library of kernels was compiled with other headers than this library, which names both files.
void check_kernels();

// The kernel of that name. Throws as check_kernels does, and when there is none.
AnyKernel look_up(const char* name);

template <class Params, class Context>
void run_with(const Params& params, Context& context) {
  static const auto kernel = reinterpret_cast<Kernel<Params, Context>>(look_up(KernelName<Params, Context>::get()));
  kernel(params, context);
}

const CpuContext& cpu_context();

// Runs the kernel for Params on a device, on the current stream of a GPU.
template <class Params>
void run(c10::Device device, const Params& params) {
  if (device.is_cpu()) {
    run_with(params, cpu_context());
  } else {
    on_current_stream(device, [&](CudaStream& stream) { run_with(params, stream); });
  }
}

// Whether a table of this build has kernels for CUDA; true for one of another build, so that a call says what is wrong.
bool has_cuda_kernels();

// In a TORCH_LIBRARY_FRAGMENT: the function serves every device that there are kernels for.
template <class TheOp, auto Function>
void implement(torch::Library& library) {
  library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(Function)));
  if (has_cuda_kernels()) library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::CUDA, TORCH_FN(Function)));
}

}  // namespace cppcuda::kit
