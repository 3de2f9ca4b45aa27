#pragma once

// Batching rules: kernels on the FuncTorchBatched key, with which vmap makes one call instead of one per row.

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/shape.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The level of the innermost vmap. The highest level among the arguments may differ: in vmap of grad of vmap it may
// belong to a transform that is not running.
class VmapLevel {
 public:
  static VmapLevel current();

  bool is_batched(const Tensor& t) const;

  // The number of rows, from the first batched tensor.
  c10::SymInt batch_size(at::ArrayRef<Tensor> tensors) const;

  // [B, ...]: moves the batch to the front. A tensor without a batch is expanded with stride 0, not copied.
  Tensor unwrap(const Tensor& t, const c10::SymInt& batch_size) const;

  // The inverse, for a result with the batch in front.
  Tensor wrap(const Tensor& t) const;

 private:
  explicit VmapLevel(int64_t level) : level_(level) {}
  int64_t level_;
};

template <class TheOp, auto Shape, class Type, int Leading, int... OwnRanks>
struct VmapRule;

// The last OwnRanks dims of each tensor argument are the operator's own. Before them come up to Leading dims, as many
// for each argument. The batch becomes another leading dim, or is folded into the first one if there are Leading
// already.
template <class TheOp, auto Shape, class R, class... Args, int Leading, int... OwnRanks>
struct VmapRule<TheOp, Shape, R(Args...), Leading, OwnRanks...> {
  static R run(Args... args) {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
    const auto level = VmapLevel::current();
    const auto tensors = tensor_arguments(args...);
    if (std::none_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return level.is_batched(t); })) {
      return TheOp::call(args...);
    }
    Shape(args...);  // so that errors show the sizes that the caller sees

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
      if (!is_requested(o, args...)) continue;
      Tensor& t = results[o];
      if (fold) t = t.unflatten_symint(0, {batch, inner});
      t = level.wrap(t);
    }
    return from_array<R>(std::move(results));
  }

 private:
  static int64_t leading_dims(const std::array<Tensor, sizeof...(OwnRanks)>& tensors) {
    constexpr std::array<int, sizeof...(OwnRanks)> own{OwnRanks...};
    int64_t leading = -1;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;
      const int64_t before = tensors[i].dim() - own[i];
      TORCH_INTERNAL_ASSERT(leading == -1 || leading == before, op_name(TheOp::schema()), ": argument ", i, " has ",
                            before, " dims before its own ", own[i], ", others have ", leading);
      leading = before;
    }
    return leading;
  }
};

template <class TheOp, auto Shape, int Leading, int... OwnRanks>
using VmapKernel = VmapRule<TheOp, Shape, typename TheOp::Type, Leading, OwnRanks...>;

template <class Op, auto Shape, int Leading, int... OwnRanks>
auto vmap_leading() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((VmapKernel<Op, Shape, Leading, OwnRanks...>::run)));
}

// For operators over rows [N] or [B, N].
template <class Op, auto Shape, int... OwnRanks>
auto vmap_rows() {
  return vmap_leading<Op, Shape, 2, OwnRanks...>();
}

// The batching rule derived from the declaration: the batch becomes the optional first dim, or is folded into the first
// dim, which all tensors have.
template <class TheOp, auto Shape = kit::Shape<TheOp>::outputs>
auto vmap() {
  constexpr const Declaration& declaration = TheOp::declaration;
  static_assert(have_same_first_dim(declaration), "vmap: the patterns of all tensors must start with the same letter");
  return []<size_t... I>(std::index_sequence<I...>) {
    constexpr auto own = [](size_t i) {
      return static_cast<int>(declaration.arguments[declaration.tensor_argument(i)].pattern.rank()) - 1;
    };
    return vmap_leading<TheOp, Shape, 1, own(I)...>();
  }(std::make_index_sequence<declaration.tensor_count()>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
