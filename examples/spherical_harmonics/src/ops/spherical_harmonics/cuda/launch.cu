// Launches the CUDA kernels, and adds them to the table of kernels.
#include <algorithm>
#include <type_traits>

#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/kernel_table.h"
#include "ops/spherical_harmonics/cuda/kernel.cuh"

namespace sph::ops::spherical_harmonics {
namespace {

constexpr unsigned max_shared_bytes = 48 << 10;  // of a block, on every GPU

template <class T>
constexpr unsigned warp_bytes(int degree) {
  return warp_threads * staged_step(degree) * sizeof(T);
}

// kernel(whether rows are staged) returns a kernel. A block has as many warps, up to four, as fit into shared memory.
template <class T, class Params, class Kernel>
void launch_staged(const Params& p, kit::CudaStream& stream, Kernel kernel) {
  const unsigned bytes = warp_bytes<T>(p.degree);
  if constexpr (warp_bytes<T>(max_degree) > max_shared_bytes) {
    if (bytes > max_shared_bytes) {
      return kit::launch(kernel(std::false_type()), kit::grid_stride_launch(p.rows.count), stream, p);
    }
  }
  const unsigned warps = std::min<unsigned>(max_shared_bytes / bytes, kit::threads_per_block / warp_threads);
  kit::LaunchShape shape = kit::grid_stride_launch(p.rows.count, warps * warp_threads);
  shape.threads = warps * warp_threads;
  shape.shared_bytes = warps * bytes;
  kit::launch(kernel(std::true_type()), shape, stream, p);
}

template <class T>
void forward(const ForwardParams<T>& p, kit::CudaStream& stream) {
  launch_staged<T>(p, stream, [](auto staged) { return forward_kernel<staged(), T>; });
}

template <class T>
void backward(const BackwardParams<T>& p, kit::CudaStream& stream) {
  launch_staged<T>(p, stream, [](auto staged) { return backward_kernel<staged(), T>; });
}

template <class T>
void partials(const PartialsParams<T>& p, kit::CudaStream& stream) {
  kit::launch(partials_kernel<T>, kit::grid_stride_launch(p.rows.count), stream, p);
}

template <class T>
void partials_transposed(const PartialsTransposedParams<T>& p, kit::CudaStream& stream) {
  kit::launch(partials_transposed_kernel<T>, kit::grid_stride_launch(p.rows.count), stream, p);
}

[[maybe_unused]] const bool added = kit::for_each_dtype([]<class T>() {
  kit::add_to_table(&forward<T>);
  kit::add_to_table(&backward<T>);
  kit::add_to_table(&partials<T>);
  kit::add_to_table(&partials_transposed<T>);
});

}  // namespace
}  // namespace sph::ops::spherical_harmonics
