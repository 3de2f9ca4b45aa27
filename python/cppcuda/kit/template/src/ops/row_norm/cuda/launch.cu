// Launches the CUDA kernels, and adds them to the table of kernels. Change: the grid.
#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/kernel_table.h"
#include "ops/row_norm/cuda/kernel.cuh"

namespace my_ops::ops::row_norm {
namespace {

template <class T>
void forward(const ForwardParams<T>& p, kit::CudaStream& stream) {
  kit::launch(forward_kernel<T>, kit::grid_stride_launch(p.rows.count, rows_per_block), stream, p);
}

template <class T>
void backward(const BackwardParams<T>& p, kit::CudaStream& stream) {
  kit::launch(backward_kernel<T>, kit::grid_stride_launch(p.rows.count, rows_per_block), stream, p);
}

[[maybe_unused]] const bool added = kit::for_each_dtype([]<class T>() {
  kit::add_to_table(&forward<T>);
  kit::add_to_table(&backward<T>);
});

}  // namespace
}  // namespace my_ops::ops::row_norm
