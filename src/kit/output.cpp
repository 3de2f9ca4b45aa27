#include "cppcuda/kit/output.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "cppcuda/kit/memory.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace {

// at::empty and at::empty_like on the CPU without the dispatcher, which takes longer than computing a small output.
// Returns nothing if at::empty must do more, such as filling new memory in deterministic mode.
std::optional<Tensor> empty_on_cpu(const Output& output) {
  if (!output.options.device().is_cpu() || at::globalContext().deterministicAlgorithms()) return {};
  if (const Tensor& like = output.strides_of; like.defined()) {
    if (like.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || !like.is_non_overlapping_and_dense()) return {};
    return at::detail::empty_strided_cpu(like.sizes(), like.strides(), output.options);
  }
  const auto sizes = c10::asIntArrayRefSlowOpt(output.sizes);
  if (!sizes) return {};
  return at::detail::empty_cpu(*sizes, output.options);
}

}  // namespace

Tensor allocate(const Output& output) {
  Tensor result = [&] {
    if (auto on_cpu = empty_on_cpu(output)) return *std::move(on_cpu);
    if (output.strides_of.defined()) return at::empty_like(output.strides_of, output.options);
    return at::empty_symint(output.sizes, output.options);
  }();
  detail::advise_huge_pages(result);
  return result;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
