#pragma once

// Batching rules: kernels on the FuncTorchBatched key that make vmap one call of the op, not one
// per row.

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/op.h"

namespace cppcuda::core {

// The innermost vmap. The highest level among the arguments is not the same: between vmap, grad and
// vmap it belongs to a transform that is not running.
class VmapLevel {
 public:
  static VmapLevel current();

  bool is_batched(const Tensor& t) const;

  // The number of rows, from the first batched tensor.
  c10::SymInt batch_size(at::ArrayRef<Tensor> tensors) const;

  // [B, ...]: the batch moved to the front; a tensor without one gets it at stride 0, not by
  // copying.
  Tensor unwrap(const Tensor& t, const c10::SymInt& batch_size) const;

  // The opposite, for a result with the batch in front.
  Tensor wrap(const Tensor& t) const;

 private:
  explicit VmapLevel(int64_t level) : level_(level) {}
  int64_t level_;
};

template <class Op, auto Shape, int Leading, int... CoreRanks>
struct VmapKernel;

// The last CoreRanks dims of each tensor argument are the op's own. Before them come at most Leading others, the same
// for all arguments; the batch becomes one more, or is folded into the first of them when there are so many already.
template <FixedString Name, class R, class... Args, auto Shape, int Leading, int... CoreRanks>
struct VmapKernel<Op<Name, R(Args...)>, Shape, Leading, CoreRanks...> {
  using TheOp = Op<Name, R(Args...)>;

  static R run(Args... args) {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
    const auto level = VmapLevel::current();
    const auto tensors = tensor_arguments(args...);
    if (std::none_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return level.is_batched(t); })) {
      return TheOp::call(args...);
    }
    Shape(args...);  // errors speak of the sizes that the caller sees

    const c10::SymInt batch = level.batch_size(tensors);
    const bool fold = leading_dims(tensors) == Leading;
    c10::SymInt inner = 1;
    auto unwrap = [&]<class T>(const T& arg) -> T {
      if constexpr (is_tensor_argument<T>) {
        Tensor t = tensor_or_undefined(arg);
        if (!t.defined()) return arg;
        t = level.unwrap(t, batch);
        if (fold) {
          inner = t.sym_size(1);
          t = t.flatten(0, 1);
        }
        return t;
      } else {
        return arg;
      }
    };
    auto results = to_array(TheOp::call(unwrap(args)...));
    for (size_t o = 0; o < results.size(); ++o) {
      if (!computes(o, args...)) continue;
      Tensor& t = results[o];
      if (fold) t = t.unflatten_symint(0, {batch, inner});
      t = level.wrap(t);
    }
    return from_array<R>(std::move(results));
  }

 private:
  static int64_t leading_dims(const std::array<Tensor, sizeof...(CoreRanks)>& tensors) {
    constexpr std::array<int, sizeof...(CoreRanks)> core{CoreRanks...};
    int64_t leading = -1;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      const int64_t before = tensors[i].dim() - core[i];
      TORCH_INTERNAL_ASSERT(leading == -1 || leading == before, op_name(TheOp::schema()), ": argument ", i, " has ",
                            before, " dims before its own ", core[i], ", others have ", leading);
      leading = before;
    }
    return leading;
  }
};

template <class Op, auto Shape, int Leading, int... CoreRanks>
auto vmap_leading() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((VmapKernel<Op, Shape, Leading, CoreRanks...>::run)));
}

// For ops over rows, [N] or [B, N] of them.
template <class Op, auto Shape, int... CoreRanks>
auto vmap_rows() {
  return vmap_leading<Op, Shape, 2, CoreRanks...>();
}

}  // namespace cppcuda::core
