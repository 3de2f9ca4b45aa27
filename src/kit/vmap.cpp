#include "cppcuda/kit/vmap.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

VmapLevel VmapLevel::current() {
  const auto layer = at::functorch::maybeCurrentDynamicLayer();
  TORCH_CHECK(layer.has_value(), "a tensor that belongs to torch.func.vmap was used after vmap returned");
  return VmapLevel(layer->layerId());
}

bool VmapLevel::is_batched(const Tensor& t) const { return at::functorch::isBatchedAtLevel(t, level_); }

c10::SymInt VmapLevel::batch_size(at::ArrayRef<Tensor> tensors) const {
  for (const Tensor& t : tensors) {
    const auto [value, dim] = at::functorch::unwrapTensorAtLevel(t, level_);
    if (dim) return value.sym_size(*dim);
  }
  TORCH_INTERNAL_ASSERT(false, "no tensor is batched at this level");
}

Tensor VmapLevel::unwrap(const Tensor& t, const c10::SymInt& batch_size) const {
  const auto [value, dim] = at::functorch::unwrapTensorAtLevel(t, level_);
  if (dim) return value.movedim(*dim, 0);
  c10::SymDimVector sizes{batch_size};
  sizes.append(value.sym_sizes().begin(), value.sym_sizes().end());
  return value.unsqueeze(0).expand_symint(sizes);
}

Tensor VmapLevel::wrap(const Tensor& t) const { return at::functorch::makeBatched(t, 0, level_); }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
