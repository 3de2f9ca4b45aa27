#pragma once

// Registration of elementwise operators, except the CPU and CUDA kernels and the derivatives.

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/elementwise/on_tensors.h"
#include "cppcuda/kit/rows/operators.h"
#include "cppcuda/kit/vmap.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// "...,...,...->...1,...2 ...": along every dim of the result. An output has the dims of tensor number own_tensor(o),
// which may broadcast, unless that is 0. The dims of a point's values and of a row's are "_".
template <class F>
std::string sharding_rule(const Declaration& d, size_t outputs, F own_tensor) {
  std::string result;
  const auto append = [&](const Pattern& pattern) { result.append("...").append(pattern.rank(), '_'); };
  for (size_t i = 0; i < d.tensor_count(); ++i) {
    if (i > 0) result += ',';
    append(d.arguments[d.tensor_argument(i)].pattern);
  }
  result += "->";
  for (size_t o = 0; o < outputs; ++o) {
    if (o > 0) result += ',';
    if (const size_t tensor = own_tensor(o); tensor != 0) {
      result += "..." + std::to_string(tensor);
    } else {
      append(d.outputs[o].pattern);
    }
  }
  return result + " ...";
}

// The last `own` of several outputs have the dims of tensors 1, 2, ...
inline std::string elementwise_sharding_rule(const Declaration& d, size_t outputs, size_t own = 0) {
  return sharding_rule(d, outputs, [=](size_t o) { return own > 1 && o + own >= outputs ? o + own - outputs + 1 : 0; });
}

// The first tensor of a backward operator is a gradient, so no output has the dims of tensor 0.
template <class Kernels>
std::string row_sharding_rule() {
  const Declaration& d = Kernels::TheOp::declaration;
  return sharding_rule(d, d.outputs.size(), [](size_t o) -> size_t {
    if constexpr (Kernels::is_backward) return Kernels::own_tensor(o);
    return 0;
  });
}

// In a TORCH_LIBRARY_FRAGMENT: an operator that returns new tensors. It accepts any number of leading dims, so a batch
// is never folded.
template <class TheOp, class Kernels>
void define_functional(torch::Library& library, const std::string& sharding_rule) {
  std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  if (!has_any_leading<TheOp>()) tags.push_back(at::Tag::pointwise);
  define<TheOp, Kernels::shape>(library, TheOp::torch_schema, tags);
  constexpr auto tensors = std::make_index_sequence<TheOp::declaration.tensor_count()>();
  const auto vmap = []<size_t... I>(std::index_sequence<I...>) {
    constexpr auto shape = by_position<TheOp, Kernels::shape>();
    constexpr const Declaration& d = TheOp::declaration;
    return vmap_leading<TheOp, shape, any_leading,
                        static_cast<int>(d.arguments[d.tensor_argument(I)].pattern.rank())...>();
  };
  library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::FuncTorchBatched, vmap(tensors)));
  define_sharding(library, base_name(TheOp::declaration), sharding_rule);
}

template <class Kernels>
void define_functional(torch::Library& library) {
  using TheOp = typename Kernels::TheOp;
  const Declaration& d = TheOp::declaration;
  define_functional<TheOp, Kernels>(library, elementwise_sharding_rule(d, d.outputs.size(), Kernels::gradients_of_own));
}

// Rejects a call in place or with out= that would silently lose the gradient of a tensor argument.
void check_loses_no_gradient(const c10::FunctionSchema& schema, at::ArrayRef<Tensor> tensors);

// The kernels of a call in place or with out= that are hot. Such operators are for inference and not differentiable.
// Checks is their OutVariantKernel.
template <class TheOp, class Checks, class Type = typename TheOp::Type>
struct OutVariant;

template <class TheOp, class Checks, class... Args>
struct OutVariant<TheOp, Checks, void(Args...)> {
  static void autograd(c10::DispatchKeySet keys, Args... args) {
    check_loses_no_gradient(TheOp::schema(), tensor_arguments(args...));
    const at::AutoDispatchBelowAutograd below;
    TheOp::redispatch(keys & c10::after_autograd_keyset, args...);
  }

  // Without a new version, a graph that saved the tensor would silently use the new values.
  static void bump_version(c10::DispatchKeySet keys, Args... args) {
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      TheOp::redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
    }
    Checks::written(args...).unsafeGetTensorImpl()->bump_version();
  }
};

// Registers the other kernels of an operator that writes to an argument: under vmap, for negative views, and for
// functionalization. The schema says which argument is written, the name which operator returns the value, and the Meta
// kernel checks a call.
void implement_out_variant(torch::Library& library, const char* name);

// Call this in a TORCH_LIBRARY_FRAGMENT. The schema returns nothing, because torch.compile rejects operators whose
// output is an argument.
template <class TheOp, class Checks>
void define_out_variant(torch::Library& library, const std::string& schema) {
  using c10::DispatchKey;
  define_schema<TheOp>(library, schema.c_str(), {at::Tag::pt2_compliant_tag});
  const auto impl = [&](DispatchKey key, auto kernel) { library.impl(TheOp::name, torch::dispatch(key, kernel)); };
  impl(DispatchKey::Meta, TORCH_FN(Checks::check));
  impl(DispatchKey::Autograd, TORCH_FN((OutVariant<TheOp, Checks>::autograd)));
  impl(DispatchKey::ADInplaceOrView, TORCH_FN((OutVariant<TheOp, Checks>::bump_version)));
  library.impl(TheOp::name, torch::dispatch(DispatchKey::CompositeExplicitAutograd,
                                            torch::CppFunction::makeFromBoxedFunction<&refuse_backend<TheOp>>()));
  implement_out_variant(library, TheOp::name);
}

// The schema of a variant that writes: "swish_(Tensor(a!) self, float beta) -> ()". `written` stands for an argument,
// or comes after all.
inline std::string schema_of_variant(const char* name, const Declaration& declaration, size_t replaced,
                                     const char* written) {
  std::string result(name);
  result.erase(0, result.find("::") + 2);
  result += '(';
  for (size_t i = 0; i < declaration.arguments.size(); ++i) {
    const Argument& a = declaration.arguments[i];
    if (i > 0) result += ", ";
    if (i == replaced) {
      result += written;
    } else {
      append_argument(result, a);
    }
  }
  if (replaced == declaration.arguments.size()) result.append(", ").append(written);
  return result + ") -> ()";
}

// What autocast does with the arguments. One tensor has nothing to be promoted to.
template <class Definition>
constexpr CastPolicy cast_policy() {
  if constexpr (requires { Definition::under_autocast; }) {
    return Definition::under_autocast;
  } else {
    return input_count<Definition> > 1 ? CastPolicy::promote : CastPolicy::none;
  }
}

// Defines the calls in place and with out= of a definition.
template <class Definition, class Math>
void define_variants(torch::Library& m) {
  using Ops = OpsOf<Definition>;
  using Forward = typename Ops::Forward;
  using InPlace = typename Ops::InPlace;
  using Out = typename Ops::Out;
  const Declaration& declaration = Forward::declaration;
  if constexpr (has_in_place<Definition>()) {
    define_out_variant<InPlace, InPlaceKernels<Definition, Math>>(
        m, schema_of_variant(InPlace::name, declaration, 0, "Tensor(a!) self"));
    define_sharding(m, InPlace::base_name(), elementwise_sharding_rule(declaration, 0));
  }
  define_out_variant<Out, OutKernels<Definition, Math>>(
      m, schema_of_variant(Out::name, declaration, declaration.arguments.size(), "*, Tensor(a!) out"));
}

template <class Definition>
void define_rows(torch::Library& m) {
  using Kernels = RowKernelsOf<Definition>;
  const auto define = [&]<class Each>(std::type_identity<Each>) {
    define_functional<typename Each::TheOp, Each>(m, row_sharding_rule<Each>());
  };
  define(std::type_identity<typename Kernels::Forward>());
  define_autocast<cast_policy<Definition>()>(m, Kernels::Forward::TheOp::name);
  if constexpr (Kernels::hides) define(std::type_identity<typename Kernels::Whole>());
  if constexpr (Kernels::has_backward) define(std::type_identity<typename Kernels::Backward>());
  if constexpr (Kernels::has_variants) define_variants<Definition, RowForward<Definition>>(m);
}

// Defines the operators of a definition.
template <class Definition>
void define_each(torch::Library& m) {
  if constexpr (is_of_rows<Definition>) {
    define_rows<Definition>(m);
  } else {
    using Ops = ElementwiseOps<Definition>;
    define_functional<ForwardKernels<Definition>>(m);
    define_functional<BackwardKernels<Definition>>(m);
    define_functional<DoubleBackwardKernels<Definition>>(m);
    if constexpr (!is_of_points<Definition>) {
      Decomposition<typename Ops::Forward, ElementwiseForward<Definition>>::define(m);
      Decomposition<typename Ops::Backward, ElementwiseBackward<Definition>>::define(m);
    }
    define_autocast<cast_policy<Definition>()>(m, Ops::Forward::name);
    define_variants<Definition, ForwardMath<Definition>>(m);
  }
}

}  // namespace detail

// Defines every operator that family.h describes, without kernels and derivatives. Call it in a TORCH_LIBRARY_FRAGMENT.
template <class... Definitions>
void define_elementwise(torch::Library& m, Family<Definitions...>) {
  (detail::define_each<Definitions>(m), ...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
