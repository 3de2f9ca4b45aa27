#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/trilinear/cpu/kernel.h"

namespace cppcuda::ops::trilinear {
namespace {

template <class T, class P>
void forward(const ForwardParams<T, P>& p, const kit::CpuContext& cpu) {
  constexpr int64_t rows = 8 + 1;  // of F values each: the corners and the output
  const bool nontemporal = cpu.exceeds_cache(p.rows.count * rows * p.features * sizeof(T));
  kit::parallel_rows(cpu, p.rows.count, 8 * p.features, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    RowKernel<typename decltype(isa)::type, T, P>::forward(p, begin, end, nontemporal);
  });
}

template <class T, class P>
void backward(const BackwardParams<T, P>& p, const kit::CpuContext& cpu) {
  const int64_t rows = (p.grad_points ? 8 : 0) + 1 + 8;  // of F values each: feats, grad, grad_feats
  const bool nontemporal = cpu.exceeds_cache(p.rows.count * rows * p.features * sizeof(T));
  kit::parallel_rows(cpu, p.rows.count, 8 * p.features, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    RowKernel<typename decltype(isa)::type, T, P>::backward(p, begin, end, nontemporal);
  });
}

template <class T, class P>
void double_backward(const DoubleBackwardParams<T, P>& p, const kit::CpuContext& cpu) {
  const int64_t rows = (p.feats.data ? 8 : 0) + (p.grad_grad_feats.data ? 8 : 0) + (p.grad_feats ? 8 : 0) + 2;
  const bool nontemporal = cpu.exceeds_cache(p.rows.count * rows * p.features * sizeof(T));
  kit::parallel_rows(cpu, p.rows.count, 8 * p.features, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    RowKernel<typename decltype(isa)::type, T, P>::double_backward(p, begin, end, nontemporal);
  });
}

[[maybe_unused]] const bool added = kit::for_each_dtypes([]<class T, class P>() {
  kit::add_to_table(&forward<T, P>);
  kit::add_to_table(&backward<T, P>);
  kit::add_to_table(&double_backward<T, P>);
});

}  // namespace
}  // namespace cppcuda::ops::trilinear
