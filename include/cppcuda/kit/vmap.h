#pragma once

// Batching rules: kernels on the FuncTorchBatched key, with which vmap makes one call instead of one per row.

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/FunctionRef.h>
#include <torch/library.h>

#include <array>
#include <limits>
#include <span>
#include <tuple>

#include "cppcuda/kit/op.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/shape.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// The level of the innermost vmap. The highest level among the arguments may differ: in vmap of grad of vmap it may
// belong to a transform that is not running.
class VmapLevel {
 public:
  static VmapLevel current();

  bool is_batched(const Tensor& t) const;

  // The number of rows, from the first batched tensor.
  c10::SymInt batch_size(at::ArrayRef<Tensor> tensors) const;

  // [B, ...]: moves the batch to the front. A tensor without a batch is expanded with stride 0, not copied. After the
  // batch come dims of size 1 if there are fewer than `dims`.
  Tensor unwrap(const Tensor& t, const c10::SymInt& batch_size, int64_t dims = 0) const;

  // The inverse, for a result with the batch in front.
  Tensor wrap(const Tensor& t) const;

 private:
  explicit VmapLevel(int64_t level) : level_(level) {}
  int64_t level_;
};

// `leading` of operators that take any number of leading dims, which broadcast.
inline constexpr int any_leading = std::numeric_limits<int>::max();

// A batching rule without the types of its operator. The last own_ranks dims of each tensor argument are the operator's
// own. Before them come up to `leading` dims, as many for each argument. The batch becomes another leading dim, or is
// folded into the first one if there are `leading` already. A tensor whose own rank is -1 has no leading dims: if it
// has a batch, or if an output has no leading dims, the operator is called once for each row of the batch.
struct BatchingRule {
  const char* name;
  int leading;
  std::span<const int> own_ranks;
  // Null if the rule is not derived from one. If rows share an argument (rows_share in derive.h) and only rows have the
  // batch, it becomes more rows: then the gradient of what they share is one sum, where the rule above would compute
  // one per batch.
  const Declaration* declaration;
};

// A call whose tensors are replaced.
struct BatchedCall {
  // So that errors show the sizes that the caller sees. Sets the number of dims of each output.
  c10::function_ref<void(std::span<int64_t> dims)> check;
  c10::function_ref<void()> run;  // sets `outputs`, from `tensors`
  c10::function_ref<bool(size_t output)> is_requested;
};

// The body of a batching rule. Undefined tensors are missing.
void run_batched(const BatchingRule& rule, std::span<Tensor> tensors, std::span<Tensor> outputs,
                 const BatchedCall& call);

inline void set_dims(std::span<int64_t> dims, const Output& output) { dims[0] = output.sizes.size(); }
template <size_t N>
void set_dims(std::span<int64_t> dims, const std::array<Output, N>& outputs) {
  for (size_t o = 0; o < N; ++o) dims[o] = outputs[o].sizes.size();
}

template <class TheOp, auto Shape, class Type, int Leading, bool Declared, int... OwnRanks>
struct VmapRule;

template <class TheOp, auto Shape, class R, class... Args, int Leading, bool Declared, int... OwnRanks>
struct VmapRule<TheOp, Shape, R(Args...), Leading, Declared, OwnRanks...> {
  static R run(Args... args) {
    static constexpr std::array<int, sizeof...(OwnRanks)> own{OwnRanks...};
    const Declaration* declaration = nullptr;
    if constexpr (Declared) declaration = &TheOp::declaration;
    auto tensors = tensor_arguments(args...);
    std::array<Tensor, tensor_count<R>> outputs;
    const auto call = [&] {
      outputs = to_array(
          std::apply([](const auto&... a) { return TheOp::call(a...); }, with_tensors(tensors.data(), args...)));
    };
    run_batched({TheOp::base_name(), Leading, own, declaration}, tensors, outputs,
                {[&](std::span<int64_t> dims) { set_dims(dims, Shape(args...)); }, call,
                 [&](size_t o) { return is_requested_by<TheOp>(o, args...); }});
    return from_array<R>(std::move(outputs));
  }
};

}  // namespace detail

template <class TheOp, auto Shape, int Leading, int... OwnRanks>
using VmapKernel = detail::VmapRule<TheOp, Shape, typename TheOp::Type, Leading, /*Declared=*/false, OwnRanks...>;

template <class Op, auto Shape, int Leading, int... OwnRanks>
auto vmap_leading() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((VmapKernel<Op, Shape, Leading, OwnRanks...>::run)));
}

// For operators over rows [N] or [B, N].
template <class Op, auto Shape, int... OwnRanks>
auto vmap_rows() {
  return vmap_leading<Op, Shape, 2, OwnRanks...>();
}

// The batching rule derived from the declaration: the batch becomes the optional first dim, one of the dims that "..."
// stands for, or is folded into the first dim; or it becomes more rows.
template <class TheOp, auto Shape>
auto vmap() {
  constexpr const Declaration& declaration = TheOp::declaration;
  return []<size_t... I>(std::index_sequence<I...>) {
    constexpr bool any = detail::has_any_leading(declaration);
    constexpr auto own = [](size_t i) {
      const Pattern& pattern = declaration.arguments[declaration.tensor_argument(i)].pattern;
      return detail::has_leading(declaration, pattern) ? static_cast<int>(pattern.rank()) - (any ? 0 : 1) : -1;
    };
    constexpr int leading = any ? detail::any_leading : 1;
    using Rule = detail::VmapRule<TheOp, Shape, typename TheOp::Type, leading, /*Declared=*/true, own(I)...>;
    return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN(Rule::run));
  }(std::make_index_sequence<declaration.tensor_count()>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
