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

// Calls TheOp with unwrap(i, t) in place of each tensor argument t that is not missing, its number i, and returns
// wrap(o, t) in place of each requested output t, its number o.
template <class TheOp, class R, class Unwrap, class Wrap, class... Args>
R call_below(Unwrap unwrap, Wrap wrap, const Args&... args) {
  size_t i = 0;
  auto replace = [&]<class T>(const T& arg) -> T {
    if constexpr (is_tensor_argument<T>) {
      const size_t number = i++;
      const Tensor t = tensor_or_undefined(arg);
      return t.defined() ? T(unwrap(number, t)) : arg;
    } else {
      return arg;
    }
  };
  const std::tuple<Args...> replaced{replace(args)...};  // braces evaluate from left to right
  auto results = to_array(std::apply([](const auto&... all) { return TheOp::call(all...); }, replaced));
  for (size_t o = 0; o < results.size(); ++o) {
    if (is_requested(o, args...)) results[o] = wrap(o, results[o]);
  }
  return from_array<R>(std::move(results));
}

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
    const auto unwrap = [&](size_t, const Tensor& t) {
      const Tensor unwrapped = level.unwrap(t, batch);
      if (!fold) return unwrapped;
      inner = unwrapped.sym_size(1);
      return unwrapped.flatten(0, 1);
    };
    const auto wrap = [&](size_t, const Tensor& t) {
      return level.wrap(fold ? t.unflatten_symint(0, {batch, inner}) : t);
    };
    return call_below<TheOp, R>(unwrap, wrap, args...);
  }

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

// The rule of an operator whose rows share an argument (rows_share in schema.h). If only rows have the batch, it
// becomes more rows: then the gradient of what they share is one sum, where Otherwise would compute one per batch.
template <class TheOp, auto Shape, class Otherwise, class Type = typename TheOp::Type>
struct SharingVmapRule;

template <class TheOp, auto Shape, class Otherwise, class R, class... Args>
struct SharingVmapRule<TheOp, Shape, Otherwise, R(Args...)> {
  static constexpr const Declaration& declaration = TheOp::declaration;

  static R run(Args... args) {
    const auto level = VmapLevel::current();
    const auto tensors = tensor_arguments(args...);
    if (!only_rows_have_batch(level, tensors, args...)) return Otherwise::run(args...);
    const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
    Shape(args...);  // so that errors show the sizes that the caller sees

    const c10::SymInt batch = level.batch_size(tensors);
    const int64_t leading = Otherwise::leading_dims(tensors);
    c10::SymInt inner = 1;
    const auto unwrap = [&](size_t i, const Tensor& t) {
      if (!has_rows(argument(i))) return t;
      const int64_t rows = leading + row_dim(declaration, argument(i));
      const Tensor unwrapped = level.unwrap(t, batch).movedim(0, rows);
      inner = unwrapped.sym_size(rows + 1);
      return unwrapped.flatten(rows, rows + 1);
    };
    const auto wrap = [&](size_t o, const Tensor& t) {
      const int64_t rows = leading + row_dim(declaration, declaration.outputs[o]);
      return level.wrap(t.unflatten_symint(rows, {batch, inner}).movedim(rows, 0));
    };
    return call_below<TheOp, R>(unwrap, wrap, args...);
  }

 private:
  static const Declared& argument(size_t tensor) { return declaration.arguments[declaration.tensor_argument(tensor)]; }
  static bool has_rows(const Declared& tensor) { return row_dim(declaration, tensor) >= 0; }

  template <class Tensors>
  static bool only_rows_have_batch(const VmapLevel& level, const Tensors& tensors, const Args&... args) {
    bool any = false;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const bool batched = level.is_batched(tensors[i]);
      if (batched && !has_rows(argument(i))) return false;
      any |= batched;
    }
    for (size_t o = 0; o < declaration.outputs.size(); ++o) {
      if (is_requested(o, args...) && !has_rows(declaration.outputs[o])) return false;
    }
    return any;
  }
};

// The batching rule derived from the declaration: the batch becomes the optional first dim, or is folded into the first
// dim, which all tensors have; or it becomes more rows.
template <class TheOp, auto Shape = kit::Shape<TheOp>::outputs>
auto vmap() {
  constexpr const Declaration& declaration = TheOp::declaration;
  static_assert(have_same_first_dim(declaration), "vmap: the patterns of all tensors must start with the same letter");
  return []<size_t... I>(std::index_sequence<I...>) {
    constexpr auto own = [](size_t i) {
      return static_cast<int>(declaration.arguments[declaration.tensor_argument(i)].pattern.rank()) - 1;
    };
    using Rule = VmapKernel<TheOp, Shape, 1, own(I)...>;
    if constexpr (rows_share(declaration)) {
      return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((SharingVmapRule<TheOp, Shape, Rule>::run)));
    } else {
      return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN(Rule::run));
    }
  }(std::make_index_sequence<declaration.tensor_count()>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
