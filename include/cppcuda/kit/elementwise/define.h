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
template <class Definition>
void define_variants_of(torch::Library& m) {
  const Declaration& declaration = OpsOf<Definition>::Forward::declaration;
  constexpr auto memory = is_of_rows<Definition> ? OutMemory::any_but_inputs_on_gpu : OutMemory::any;
  define_variants(m, declaration, elementwise_sharding_rule(declaration, 1), memory, has_in_place<Definition>());
}

template <class Definition>
void define_rows(torch::Library& m) {
  using Kernels = RowKernelsOf<Definition>;
  const auto define = [&]<class Each>(std::type_identity<Each>) {
    define_functional<typename Each::TheOp, Each>(m, row_sharding_rule<Each>());
  };
  define(std::type_identity<typename Kernels::Forward>());
  define_autocast(m, Kernels::Forward::TheOp::name, cast_policy<Definition>(), nullptr);
  if constexpr (Kernels::hides) define(std::type_identity<typename Kernels::Whole>());
  if constexpr (Kernels::has_backward) define(std::type_identity<typename Kernels::Backward>());
  if constexpr (Kernels::has_variants) define_variants_of<Definition>(m);
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
    define_autocast(m, Ops::Forward::name, cast_policy<Definition>(), nullptr);
    define_variants_of<Definition>(m);
  }
}

}  // namespace detail

// Defines every operator that family.h describes, without kernels and derivatives. Call it in a TORCH_LIBRARY_FRAGMENT.
template <class... Definitions>
void define_elementwise(torch::Library& m, Family<Definitions...>) {
  (detail::define_each<Definitions>(m), ...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
