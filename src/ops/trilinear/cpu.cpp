#include <torch/library.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "ops/trilinear/adapter.h"
#include "ops/trilinear/cpu_kernel.h"
#include "ops/trilinear/schema.h"

namespace cppcuda::ops::trilinear {
namespace {

Tensor forward_cpu(const Tensor& feats, const Tensor& points) {
  return forward(feats, points, []<class T, class P>(const ForwardParams<T, P>& p) {
    constexpr int64_t rows = 8 + 1;  // of F values: the corners, the output
    const bool stream = core::exceeds_cache(p.rows.count * rows * p.features * sizeof(T));
    core::parallel_rows(p.rows.count, 8 * p.features, core::elements_per_task,
                        [&](auto isa, int64_t begin, int64_t end) {
                          RowKernel<typename decltype(isa)::type, T, P>::forward(p, begin, end, stream);
                        });
  });
}

std::tuple<Tensor, Tensor> backward_cpu(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                        c10::List<bool> output_mask) {
  return backward(grad, feats, points, output_mask, []<class T, class P>(const BackwardParams<T, P>& p) {
    const int64_t rows = (p.feats ? 8 : 0) + 1 + 8;  // of F values: the corners, the output's gradient, the corners'
    const bool stream = core::exceeds_cache(p.rows.count * rows * p.features * sizeof(T));
    core::parallel_rows(p.rows.count, 8 * p.features, core::elements_per_task,
                        [&](auto isa, int64_t begin, int64_t end) {
                          RowKernel<typename decltype(isa)::type, T, P>::backward(p, begin, end, stream);
                        });
  });
}

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  m.impl(Forward::name, TORCH_FN(forward_cpu));
  m.impl(Backward::name, TORCH_FN(backward_cpu));
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
