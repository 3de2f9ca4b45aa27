#pragma once

// Calls kernels from the torch side: kit::run(device, params) finds and calls the kernel for these Params.

#include <c10/core/Device.h>
#include <torch/library.h>

#include "cppcuda/kit/current_stream.h"
#include "cppcuda/kit/kernel_table.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// Throws if the loaded library of kernels was compiled with other headers than this library. The error names both
// files.
void check_kernels();

// The kernel with this name. Throws if there is none, and like check_kernels.
AnyKernel look_up(const char* name);

template <class Params, class Context>
void run_with(const Params& params, Context& context) {
  static const auto kernel = reinterpret_cast<Kernel<Params, Context>>(look_up(KernelName<Params, Context>::get()));
  kernel(params, context);
}

const CpuContext& cpu_context();

// Whether the table has CUDA kernels. True if the table comes from another build, so that calls report that error.
bool has_cuda_kernels();

}  // namespace detail

// Runs the kernel for Params on a device; on a GPU, on its current stream.
template <class Params>
void run(c10::Device device, const Params& params) {
  if (device.is_cpu()) {
    detail::run_with(params, detail::cpu_context());
  } else {
    detail::on_current_stream(device, [&](CudaStream& stream) { detail::run_with(params, stream); });
  }
}

// Registers a function of an operator's arguments for every device with kernels. Call it in a TORCH_LIBRARY_FRAGMENT.
template <class TheOp, class Function>
void implement(torch::Library& library, Function function) {
  library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::CPU, function));
  if (detail::has_cuda_kernels()) library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::CUDA, function));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
