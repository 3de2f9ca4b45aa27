// Splits the rows over threads, and adds the CPU kernels to the table of kernels. Change: the work per row.
#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/row_norm/cpu/kernel.h"

namespace my_ops::ops::row_norm {
namespace {

template <class T>
void forward(const ForwardParams<T>& p, const kit::CpuContext& cpu) {
  kit::parallel_rows(cpu, p.rows.count, p.features, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    RowKernel<typename decltype(isa)::type, T>::forward(p, begin, end);
  });
}

template <class T>
void backward(const BackwardParams<T>& p, const kit::CpuContext& cpu) {
  kit::parallel_rows(cpu, p.rows.count, p.features, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    RowKernel<typename decltype(isa)::type, T>::backward(p, begin, end);
  });
}

[[maybe_unused]] const bool added = kit::for_each_dtype([]<class T>() {
  kit::add_to_table(&forward<T>);
  kit::add_to_table(&backward<T>);
});

}  // namespace
}  // namespace my_ops::ops::row_norm
