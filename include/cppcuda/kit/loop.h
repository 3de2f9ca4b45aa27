#pragma once

// Kernels with one text for the CPU and CUDA. A loop is a struct of plain values with independent steps:
//
//   template <class T>
//   struct Halve {
//     kit::View<const T, 1> input;
//     kit::View<T, 1> output;
//     int64_t count, work;  // the number of steps, and about how many values a step reads
//
//     CPPCUDA_HOST_DEVICE void operator()(int64_t i) const { output(i) = input(i) / 2; }
//   };
//
// kit::run(device, Halve<float>{kit::view_of<const float, 1>(input), ...}) runs it. A file loops.cpp, which a C++
// compiler and nvcc compile, adds it to the table of kernels: kit::add_loop<Halve<float>>(). On CUDA a step is a
// thread; on the CPU threads take ranges of steps.

#include "cppcuda/kit/cuda/fail.h"
#include "cppcuda/kit/kernel_table.h"
#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/view.h"

#if defined(__CUDACC__)
#include "cppcuda/kit/cuda/launch.cuh"
#else
#include "cppcuda/kit/cpu/parallel.h"
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

#if defined(__CUDACC__)
template <class Loop>
__global__ void __launch_bounds__(threads_per_block, 1) loop_kernel(const Loop loop) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < loop.count; i += threads) loop(i);
}

template <class Loop>
void run_loop(const Loop& loop, CudaStream& stream) {
  launch(loop_kernel<Loop>, grid_stride_launch(loop.count), stream, loop);
}
#else
template <class Loop>
void run_loop(const Loop& loop, const CpuContext& cpu) {
  const auto task = [](const void* all, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) (*static_cast<const Loop*>(all))(i);
  };
  cpu.parallel_for(loop.count, std::max<int64_t>(1, grain_size / std::max<int64_t>(1, loop.work)), &loop, task);
}
#endif

}  // namespace detail

template <class Loop>
void add_loop() {
  add_to_table(&detail::run_loop<Loop>);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
