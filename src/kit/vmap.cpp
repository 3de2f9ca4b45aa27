#include "cppcuda/kit/vmap.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

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

Tensor VmapLevel::unwrap(const Tensor& t, const c10::SymInt& batch_size, int64_t dims) const {
  auto [value, dim] = at::functorch::unwrapTensorAtLevel(t, level_);
  if (dim) {
    value = value.movedim(*dim, 0);
  } else {
    c10::SymDimVector sizes{batch_size};
    sizes.append(value.sym_sizes().begin(), value.sym_sizes().end());
    value = value.unsqueeze(0).expand_symint(sizes);
  }
  while (value.dim() <= dims) value = value.unsqueeze(1);
  return value;
}

Tensor VmapLevel::wrap(const Tensor& t) const { return at::functorch::makeBatched(t, 0, level_); }

namespace {

const Argument& argument(const Declaration& d, size_t tensor) { return d.arguments[d.tensor_argument(tensor)]; }

bool has_rows(const Declaration& d, const Argument& tensor) { return row_dim(d, tensor) >= 0; }

bool only_rows_have_batch(const VmapLevel& level, const Declaration& d, std::span<const Tensor> tensors,
                          const BatchedCall& call) {
  bool any = false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool batched = level.is_batched(tensors[i]);
    if (batched && !has_rows(d, argument(d, i))) return false;
    any |= batched;
  }
  for (size_t o = 0; o < d.outputs.size(); ++o) {
    if (call.is_requested(o) && !has_rows(d, d.outputs[o])) return false;
  }
  return any;
}

int64_t leading_dims(const BatchingRule& rule, std::span<const Tensor> tensors) {
  int64_t leading = -1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int own = rule.own_ranks[i];
    if (!tensors[i].defined() || own < 0) continue;
    const int64_t before = tensors[i].dim() - own;
    if (rule.leading == any_leading) {
      leading = std::max(leading, before);
      continue;
    }
    TORCH_INTERNAL_ASSERT(leading == -1 || leading == before, rule.name, ": argument ", i, " has ", before,
                          " dims before its own ", own, ", others have ", leading);
    leading = before;
  }
  return leading;
}

bool needs_a_call_for_each_row(const VmapLevel& level, const BatchingRule& rule, std::span<const Tensor> tensors,
                               const BatchedCall& call) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (rule.own_ranks[i] < 0 && level.is_batched(tensors[i])) return true;
  }
  const auto lacks_leading = [&](const Argument& o) {
    return !o.pattern.text().empty() && !has_leading(*rule.declaration, o.pattern);
  };
  for (size_t o = 0; rule.declaration != nullptr && o < rule.declaration->outputs.size(); ++o) {
    if (call.is_requested(o) && lacks_leading(rule.declaration->outputs[o])) return true;
  }
  return false;
}

void run_each_row(const VmapLevel& level, std::span<Tensor> tensors, std::span<Tensor> outputs,
                  const BatchedCall& call) {
  const c10::SymInt batch = level.batch_size({tensors.data(), tensors.size()});
  const int64_t count = batch.guard_int(__FILE__, __LINE__);
  std::vector<Tensor> all;
  for (const Tensor& t : tensors) all.push_back(t.defined() ? level.unwrap(t, batch) : t);
  std::vector<std::vector<Tensor>> rows(outputs.size());
  // The sizes of the outputs of no rows are those of a row of zeros.
  for (Tensor& t : all) {
    if (count == 0 && t.defined()) t = at::zeros_symint(t.sym_sizes().slice(1), t.options()).unsqueeze(0);
  }
  for (int64_t row = 0; row < std::max<int64_t>(1, count); ++row) {
    for (size_t i = 0; i < all.size(); ++i) tensors[i] = all[i].defined() ? all[i].select(0, row) : all[i];
    call.run();
    for (size_t o = 0; o < outputs.size(); ++o) rows[o].push_back(outputs[o]);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (call.is_requested(o)) outputs[o] = level.wrap(at::stack(rows[o]).narrow(0, 0, count));
  }
}

}  // namespace

void run_batched(const BatchingRule& rule, std::span<Tensor> tensors, std::span<Tensor> outputs,
                 const BatchedCall& call) {
  const auto level = VmapLevel::current();
  const Declaration* sharing =
      rule.declaration != nullptr && rows_share(*rule.declaration) ? rule.declaration : nullptr;
  if (sharing != nullptr && !only_rows_have_batch(level, *sharing, tensors, call)) sharing = nullptr;
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
  if (std::none_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return level.is_batched(t); })) {
    return call.run();
  }
  c10::SmallVector<int64_t, 4> dims(outputs.size());
  call.check({dims.data(), dims.size()});
  if (needs_a_call_for_each_row(level, rule, tensors, call)) return run_each_row(level, tensors, outputs, call);

  const c10::SymInt batch = level.batch_size({tensors.data(), tensors.size()});
  const int64_t leading = leading_dims(rule, tensors);
  const bool fold = sharing || leading == rule.leading;
  // The dim that the batch is folded into; -1 if a tensor has none, and is left as it is.
  const auto fold_dim = [&](const Argument& tensor) {
    return has_rows(*sharing, tensor) ? leading + row_dim(*sharing, tensor) : -1;
  };
  c10::SymInt inner = 1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t dim = sharing ? fold_dim(argument(*sharing, i)) : 0;
    if (!tensors[i].defined() || dim < 0 || rule.own_ranks[i] < 0) continue;
    Tensor unwrapped = level.unwrap(tensors[i], batch, rule.leading == any_leading ? leading + rule.own_ranks[i] : 0);
    if (dim > 0) unwrapped = unwrapped.movedim(0, dim);
    if (fold) inner = unwrapped.sym_size(dim + 1);
    tensors[i] = fold ? unwrapped.flatten(dim, dim + 1) : unwrapped;
  }
  call.run();
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!call.is_requested(o)) continue;
    const int64_t dim = sharing ? fold_dim(sharing->outputs[o]) : 0;
    Tensor t = fold ? outputs[o].unflatten_symint(dim, {batch, inner}) : outputs[o];
    if (dim > 0) t = t.movedim(dim, 0);
    if (rule.leading == any_leading) {
      while (t.dim() > 1 + dims[o]) t = t.squeeze(1);
    }
    outputs[o] = level.wrap(t);
  }
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
