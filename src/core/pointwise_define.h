#pragma once

// Registration of elementwise ops, everything but the CPU and CUDA kernels and the derivatives.

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <limits>

#include "core/check.h"
#include "core/define.h"
#include "core/pointwise.h"
#include "core/vmap.h"

namespace cppcuda::core {

template <class TheOp, class Type = typename TheOp::Type>
struct PointwiseVmap;

template <class TheOp, class... Tensors>
struct PointwiseVmap<TheOp, Tensor(Tensors...)> {
  // Any number of dims is the op's own, so that a batch is never folded.
  using Kernel =
      VmapKernel<TheOp, Pointwise<TheOp>::shape, std::numeric_limits<int>::max(), int{0 * sizeof(Tensors)}...>;
};

// In a TORCH_LIBRARY_FRAGMENT: an elementwise op that returns a new tensor.
template <class TheOp>
void define_pointwise(torch::Library& library, const char* schema) {
  define<TheOp, Pointwise<TheOp>::shape>(library, schema, {at::Tag::pt2_compliant_tag, at::Tag::pointwise});
  library.impl(TheOp::name,
               torch::dispatch(c10::DispatchKey::FuncTorchBatched, TORCH_FN((PointwiseVmap<TheOp>::Kernel::run))));
}

// Rejects a call in place or with out= that would silently lose the gradient of argument `lost`.
[[noreturn]] void refuse_gradient(const c10::FunctionSchema& schema, size_t lost, bool forward_mode);

// The kernels of the in-place and out= variants of Functional, which write to their last argument. They are for
// inference and take part in no gradient, so a call that would lose one is an error.
template <class TheOp, class Functional, class Type = typename TheOp::Type>
struct WritingKernels;

template <class TheOp, class Functional, class... Tensors>
struct WritingKernels<TheOp, Functional, void(Tensors...)> {
  static void autograd(c10::DispatchKeySet keys, Tensors... tensors) {
    const std::array<Tensor, sizeof...(Tensors)> all{tensors...};
    for (size_t i = 0; i < all.size(); ++i) {
      const bool forward_mode = torch::autograd::isFwGradDefined(all[i]);
      const bool lost = forward_mode || torch::autograd::compute_requires_grad(all[i]);
      if (lost) refuse_gradient(TheOp::schema(), i, forward_mode);
    }
    const at::AutoDispatchBelowAutograd below;
    TheOp::redispatch(keys & c10::after_autograd_keyset, tensors...);
  }

  // Without a new version a graph that has saved the tensor would go on with what is now in it.
  static void bump_version(c10::DispatchKeySet keys, Tensors... tensors) {
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      TheOp::redispatch(keys & c10::after_ADInplaceOrView_keyset, tensors...);
    }
    torch::autograd::increment_version(written(tensors...));
  }

  static void vmap(Tensors... tensors) {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
    const auto level = VmapLevel::current();
    const std::array<Tensor, sizeof...(Tensors)> all{tensors...};
    if (std::none_of(all.begin(), all.end(), [&](const Tensor& t) { return level.is_batched(t); })) {
      return TheOp::call(tensors...);
    }
    Pointwise<TheOp>::check(tensors...);
    const auto& arguments = TheOp::schema().arguments();
    TORCH_CHECK(level.is_batched(written(tensors...)), op_name(TheOp::schema()), ": ", arguments.back().name(),
                " must have the batch that vmap gives to ", arguments.front().name(),
                ", which one tensor cannot hold; use the functional form");
    const c10::SymInt batch = level.batch_size(all);
    TheOp::call(level.unwrap(tensors, batch)...);
  }

  // For a view with the negative bit, whose memory holds the negated values.
  static void negative(Tensors... tensors) {
    Pointwise<TheOp>::check(tensors...);
    written(tensors...).copy_(Functional::call(std::get<0>(std::tie(tensors...))));
  }

  static void functionalize(Tensors... tensors) {
    namespace impl = at::functionalization::impl;
    Pointwise<TheOp>::check(tensors...);
    const auto value = [](const Tensor& t) {
      if (!impl::isFunctionalTensor(t)) return t;
      impl::sync(t);
      return impl::from_functional_tensor(t);
    };
    const Tensor& out = written(tensors...);
    const at::AutoDispatchSkipFunctionalize below;
    if (!impl::isFunctionalTensor(out)) return TheOp::call(value(tensors)...);
    impl::replace_(out, Functional::call(value(std::get<0>(std::tie(tensors...)))));
    impl::commit_update(out);
    impl::sync(out);
  }

 private:
  static const Tensor& written(const Tensors&... tensors) {
    return std::get<sizeof...(Tensors) - 1>(std::tie(tensors...));
  }
};

// In a TORCH_LIBRARY_FRAGMENT. The schema returns nothing: torch.compile refuses ops whose output is an argument.
template <class TheOp, class Functional>
void define_writing(torch::Library& library, const char* schema) {
  using Kernels = WritingKernels<TheOp, Functional>;
  using c10::DispatchKey;
  define_schema<TheOp>(library, schema, {at::Tag::pt2_compliant_tag});
  auto impl = [&](DispatchKey key, auto kernel) { library.impl(TheOp::name, torch::dispatch(key, kernel)); };
  impl(DispatchKey::Meta, TORCH_FN(Pointwise<TheOp>::check));
  impl(DispatchKey::Autograd, TORCH_FN(Kernels::autograd));
  impl(DispatchKey::ADInplaceOrView, TORCH_FN(Kernels::bump_version));
  impl(DispatchKey::FuncTorchBatched, TORCH_FN(Kernels::vmap));
  impl(DispatchKey::Negative, TORCH_FN(Kernels::negative));
  impl(DispatchKey::Functionalize, TORCH_FN(Kernels::functionalize));
  library.impl(TheOp::name, torch::dispatch(DispatchKey::CompositeExplicitAutograd,
                                            torch::CppFunction::makeFromBoxedFunction<&refuse_backend>()));
}

}  // namespace cppcuda::core
