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
// folded into the first one if there are `leading` already.
struct BatchingRule {
  const char* name;
  int leading;
  std::span<const int> own_ranks;
  // Not null if rows share an argument (rows_share in schema.h). If only rows have the batch, it becomes more rows:
  // then the gradient of what they share is one sum, where the rule above would compute one per batch.
  const Declaration* sharing;
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

// An argument of a call, or the next tensor instead.
template <class T>
T replaced(const T& arg, const Tensor*& next) {
  if constexpr (is_tensor_argument<T>) {
    const Tensor& t = *next++;
    return t.defined() ? T(t) : arg;
  } else {
    return arg;
  }
}

inline void set_dims(std::span<int64_t> dims, const Output& output) { dims[0] = output.sizes.size(); }
template <size_t N>
void set_dims(std::span<int64_t> dims, const std::array<Output, N>& outputs) {
  for (size_t o = 0; o < N; ++o) dims[o] = outputs[o].sizes.size();
}

template <class TheOp, auto Shape, class Type, int Leading, bool Sharing, int... OwnRanks>
struct VmapRule;

template <class TheOp, auto Shape, class R, class... Args, int Leading, bool Sharing, int... OwnRanks>
struct VmapRule<TheOp, Shape, R(Args...), Leading, Sharing, OwnRanks...> {
  static R run(Args... args) {
    static constexpr std::array<int, sizeof...(OwnRanks)> own{OwnRanks...};
    const Declaration* sharing = nullptr;
    if constexpr (Sharing) sharing = &TheOp::declaration;
    auto tensors = tensor_arguments(args...);
    std::array<Tensor, tensor_count<R>> outputs;
    const auto call = [&] {
      const Tensor* next = tensors.data();
      const std::tuple<std::remove_cvref_t<Args>...> all{
          replaced(args, next)...};  // braces evaluate from left to right
      outputs = to_array(std::apply([](const auto&... a) { return TheOp::call(a...); }, all));
    };
    run_batched({TheOp::base_name(), Leading, own, sharing}, tensors, outputs,
                {[&](std::span<int64_t> dims) { set_dims(dims, Shape(args...)); }, call,
                 [&](size_t o) { return is_requested_by<TheOp>(o, args...); }});
    return from_array<R>(std::move(outputs));
  }
};

}  // namespace detail

template <class TheOp, auto Shape, int Leading, int... OwnRanks>
using VmapKernel = detail::VmapRule<TheOp, Shape, typename TheOp::Type, Leading, /*Sharing=*/false, OwnRanks...>;

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
// dim, which all tensors have; or it becomes more rows.
template <class TheOp, auto Shape>
auto vmap() {
  constexpr const Declaration& declaration = TheOp::declaration;
  static_assert(detail::have_same_first_dim(declaration),
                "vmap: the patterns of all tensors must start with the same letter");
  return []<size_t... I>(std::index_sequence<I...>) {
    constexpr auto own = [](size_t i) {
      return static_cast<int>(declaration.arguments[declaration.tensor_argument(i)].pattern.rank()) - 1;
    };
    using Rule = detail::VmapRule<TheOp, Shape, typename TheOp::Type, 1, detail::rows_share(declaration), own(I)...>;
    return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN(Rule::run));
  }(std::make_index_sequence<declaration.tensor_count()>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
