#pragma once

// The parts of an operator's registration that are derived from its declaration: the schema, the Meta kernel, the
// batching rule, what autocast does, and a clear error on every backend without a kernel.

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <string>
#include <string_view>

#include "cppcuda/kit/autocast.h"
#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/shape.h"
#include "cppcuda/kit/variants.h"
#include "cppcuda/kit/vmap.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

template <class TheOp, auto Shape, class Type = typename TheOp::Type>
struct MetaKernel;

template <class TheOp, auto Shape, class R, class... Args>
struct MetaKernel<TheOp, Shape, R(Args...)> {
  static R run(Args... args) {
    const GivenOutputs* const given = take_given_outputs(TheOp::name);
    const auto shape = Shape(args...);
    if constexpr (std::is_same_v<R, Tensor>) {
      return given_or_new(given, 0, shape);
    } else {
      std::array<Tensor, tensor_count<R>> outputs;
      for (size_t o = 0; o < outputs.size(); ++o) outputs[o] = given_or_new(given, o, shape[o]);
      return from_array<R>(std::move(outputs));
    }
  }
};

// The declaration of an operator; null if it has none.
template <class TheOp>
constexpr const Declaration* declaration_of() {
  if constexpr (requires { TheOp::declaration; }) return &TheOp::declaration;
  return nullptr;
}

// Registers an error for calls without a kernel. It names the argument that is sparse, quantized, of a dtype that it
// may not have, or on a device without kernels in this build. `declaration` may be null.
void refuse_backends(torch::Library& library, const char* name, const Declaration* declaration);

// Registers what autocast does with the arguments of a call: it casts them, and the operator runs with autocast
// disabled. `declaration` may be null.
void define_autocast(torch::Library& library, const char* name, CastPolicy policy, const Declaration* declaration);

// Defines the schema of TheOp. Checks the name in it, because kernels are registered under TheOp::name.
template <class TheOp>
void define_schema(torch::Library& library, const char* schema, const std::vector<at::Tag>& tags) {
  const std::string_view name(TheOp::name), text(schema);
  TORCH_CHECK(text.substr(0, text.find('(')) == name.substr(name.find("::") + 2), name,
              " is defined with the schema of another operator: ", schema);
  library.def(schema, tags);
}

// Defines the operator <prefix>.<name of an operator>, which returns a text about that operator.
void define_text(torch::Library& library, std::string_view prefix, std::string_view name, std::string text);

// Defines the operator _sharding_rule.<name of an operator>, which returns that name and the rule: cppcuda.distributed
// reads it.
inline void define_sharding(torch::Library& library, std::string_view name, const std::string& rule) {
  define_text(library, "_sharding_rule", name, std::string(name) + " " + rule);
}

// The text of a declaration, and a line for each policy: "reads points feats" (the gradient of points reads feats),
// "independent NF", "autocast promote". cppcuda.testing derives samples and errors from it.
std::string describe(std::string_view text, const Declaration& declaration);

}  // namespace detail

// In a TORCH_LIBRARY_FRAGMENT. Shape maps the call's Args, or its arguments if the op has no declaration, to its Output
// (an array of them for a tuple), and checks them on the way; the CPU and CUDA kernels call it too.
template <class TheOp, auto Shape>
void define(torch::Library& library, const char* schema,
            const std::vector<at::Tag>& tags = {at::Tag::pt2_compliant_tag}) {
  detail::define_schema<TheOp>(library, schema, tags);
  constexpr auto shape = detail::by_position<TheOp, Shape>();
  library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::Meta, TORCH_FN((detail::MetaKernel<TheOp, shape>::run))));
  detail::refuse_backends(library, TheOp::name, detail::declaration_of<TheOp>());
}

namespace detail {

// What follows from TheOp's declaration: schema, Meta kernel, batching rule, autocast policy and sharding rule.
template <class TheOp, auto Shape>
void define_declared(torch::Library& library, const std::vector<at::Tag>& tags) {
  define<TheOp, Shape>(library, TheOp::torch_schema, tags);
  if constexpr (has_patterns(TheOp::declaration)) {
    library.impl(TheOp::name,
                 torch::dispatch(c10::DispatchKey::FuncTorchBatched, vmap<TheOp, by_position<TheOp, Shape>()>()));
  }
  define_autocast(library, TheOp::name, cast_policy(TheOp::declaration), &TheOp::declaration);
  constexpr std::string_view name = base_name(TheOp::declaration);
  if (TheOp::sharding_rule[0] != 0) define_sharding(library, name, TheOp::sharding_rule);
  define_text(library, "_declaration", name, describe(TheOp::text, TheOp::declaration));
}

// The kernel of an operator whose function returns what the operator returns.
template <class TheOp, auto Function, auto Meta, class Type = typename TheOp::Type>
struct FunctionKernel;

template <class TheOp, auto Function, auto Meta, class R, class... As>
struct FunctionKernel<TheOp, Function, Meta, R(As...)> {
  static constexpr const Declaration& declaration = TheOp::declaration;

  static R run(As... all) {
    const Args<TheOp> args(all...);
    [[maybe_unused]] Checker checked = check_call(args, /*has_memory=*/true);
    if constexpr (std::is_void_v<R>) {
      Function(args);
    } else {
      R results = Function(args);
      check_results(checked, results);
      return results;
    }
  }

  static R run_on_meta(As... all) {
    const Args<TheOp> args(all...);
    const Checker checked = check_call(args, /*has_memory=*/false);
    if constexpr (has_meta_function) {
      return Meta(args);
    } else if constexpr (!std::is_void_v<R>) {
      const auto arguments = addresses_of(args);
      std::array<Tensor, declaration.outputs.size()> outputs;
      for (size_t o = 0; o < outputs.size(); ++o) {
        outputs[o] = allocate(output_of(checked, declaration, o, arguments.data()));
      }
      return from_array<R>(std::move(outputs));
    }
  }

  // Whether it is known what the operator returns for tensors without values.
  static constexpr bool has_meta_function = !std::is_null_pointer_v<decltype(Meta)>;
  static constexpr bool has_meta =
      has_meta_function || std::is_void_v<R> ||
      (declaration.first < declaration.arguments.size() && !declaration.finds_sizes &&
       std::all_of(
           declaration.outputs.begin(), declaration.outputs.end(),
           [](const auto& o) { return o.kind == Kind::tensor && !o.pattern.text().empty(); }));

 private:
  // Fake tensors have the sizes of the declaration, so those of the results must match it.
  static void check_results(Checker& checked, const auto& results) {
    size_t o = 0;
    const auto check = [&]<class T>(const T& result) {
      const Argument& declared = declaration.outputs[o];
      if constexpr (std::is_same_v<T, Tensor>) {
        if (!declared.pattern.text().empty()) checked.shape(declaration.output_name(o), result, declared.pattern);
      }
      ++o;
    };
    if constexpr (requires { std::tuple_size<R>::value; }) {
      std::apply([&](const auto&... each) { (check(each), ...); }, results);
    } else {
      check(results);
    }
  }

  static Checker check_call(const Args<TheOp>& args, bool has_memory) {
    Checker result = checked(args);
    if constexpr (writes(declaration)) {
      std::vector<c10::IValue> values;
      std::apply([&](const auto&... each) { (values.emplace_back(each), ...); }, args.all());
      check_written(TheOp::schema(), values, has_memory);
    }
    return result;
  }
};

// An operator whose function returns what the operator returns: one that writes to arguments, takes lists of tensors,
// or returns other values than tensors. Its kernels are added to it.
template <class TheOp, auto Meta>
class DefinedFunction {
 public:
  DefinedFunction(torch::Library& library, const std::vector<at::Tag>& tags) : library_(library) {
    define_schema<TheOp>(library, TheOp::torch_schema, tags);
    constexpr const Declaration& d = TheOp::declaration;
    if (takes_tensors(d)) on_tensors_ = implement_function(library, d, TheOp::name);
    const bool is_cast = takes_tensors(d) && !writes(d) && !d.takes_lists;
    if (is_cast) define_autocast(library, TheOp::name, cast_policy(d), &d);
    if (TheOp::sharding_rule[0] != 0) define_sharding(library, base_name(d), TheOp::sharding_rule);
    if (d.finds_sizes) define_text(library, "_found_sizes", base_name(d), describe(TheOp::text, d));
  }

  // The kernels for every device that has some: R Function(const Args<TheOp>&).
  template <auto Function>
  const DefinedFunction& implement() const {
    const bool is_for_cuda = takes_tensors(TheOp::declaration) && has_cuda_kernels();
    if (is_for_cuda) add(c10::DispatchKey::CUDA, TORCH_FN((FunctionKernel<TheOp, Function, Meta>::run)));
    return implement_cpu<Function>();
  }

  template <auto Function>
  const DefinedFunction& implement_cpu() const {
    using Kernel = FunctionKernel<TheOp, Function, Meta>;
    if constexpr (takes_tensors(TheOp::declaration)) {
      if constexpr (Kernel::has_meta) add(c10::DispatchKey::Meta, TORCH_FN(Kernel::run_on_meta));
      add(c10::DispatchKey::CPU, TORCH_FN(Kernel::run));
    } else {
      add(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(Kernel::run));
    }
    return *this;
  }

  // The derivatives: R Function(const Args<TheOp>&) computes the results with torch's operators, and runs in place of
  // the kernels where a gradient or a tangent is needed.
  template <auto Function>
  const DefinedFunction& differentiate() const {
    static_assert(!writes(TheOp::declaration), "an operator that writes to an argument has no derivatives");
    TORCH_CHECK(on_tensors_, TheOp::name,
                " has no derivatives, because none of its results is a tensor with a gradient");
    using Kernel = FunctionKernel<TheOp, Function, Meta>;
    *on_tensors_ = c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(Kernel::run));
    return *this;
  }

 private:
  template <class Function>
  void add(c10::DispatchKey key, Function function) const {
    library_.impl(TheOp::name, torch::dispatch(key, std::move(function)));
  }

  torch::Library& library_;
  OnTensors on_tensors_;
};

// An operator that is defined, to which its kernels and derivatives are added. They are those of WithHidden, too, if
// the operator hides outputs.
template <class TheOp, auto Shape>
class Defined {
  using Inner = WithHidden<TheOp>;
  static constexpr bool hides = !std::is_same_v<Inner, TheOp>;
  static constexpr bool has_own_shape = [] {
    if constexpr (hides) return Shape != &outputs_of<TheOp>;
    return false;
  }();
  static_assert(!has_own_shape, "an operator with hidden outputs has no shape function of its own");

 public:
  Defined(torch::Library& library, const std::vector<at::Tag>& tags) : library_(library) {
    define_declared<TheOp, Shape>(library, tags);
    constexpr const Declaration& d = TheOp::declaration;
    if (d.has_variants) define_variants(library, d, TheOp::sharding_rule, OutMemory::as_allocated, fits_in_place(d));
    if constexpr (hides) define_declared<Inner, outputs_of<Inner>>(library, tags);
  }

  // The kernels for every device that has some: void Function(const Args<TheOp>&, const Outputs<TheOp>&).
  template <auto Function>
  const Defined& implement() const {
    kit::implement<TheOp>(library_, kernel_of<TheOp, Function, Shape>());
    if constexpr (hides) kit::implement<Inner>(library_, kernel_of<Inner, Function>());
    return *this;
  }

  template <auto Function>
  const Defined& implement_cpu() const {
    add<TheOp>(c10::DispatchKey::CPU, kernel_of<TheOp, Function, Shape>());
    if constexpr (hides) add<Inner>(c10::DispatchKey::CPU, kernel_of<Inner, Function>());
    return *this;
  }

  // The derivatives (formula.h). If a gradient may be needed, the operator with the hidden outputs runs.
  template <class Formula>
  const Defined& differentiate() const {
    static_assert(std::is_same_v<typename Formula::Op, Inner>, "the formula belongs to another operator");
    add<Inner>(c10::DispatchKey::Autograd, autograd<Formula>());
    if constexpr (hides) add<TheOp>(c10::DispatchKey::Autograd, autograd_through<TheOp, Inner, Shape>());
    return *this;
  }

 private:
  template <class Op, auto Function, auto OwnShape = outputs_of<Op>>
  static constexpr auto kernel_of() {
    return TORCH_FN((AllocatingKernel<Op, Function, OwnShape, has_any_leading<Op>()>::run));
  }

  template <class Op, class Function>
  void add(c10::DispatchKey key, Function function) const {
    library_.impl(Op::name, torch::dispatch(key, std::move(function)));
  }

  torch::Library& library_;
};

}  // namespace detail

namespace detail {

template <class TheOp>
constexpr auto default_shape() {
  if constexpr (TheOp::declaration.allocates) {
    return &outputs_of<TheOp>;
  } else {
    return nullptr;
  }
}

template <class TheOp, auto Shape>
auto definition() {
  if constexpr (TheOp::declaration.allocates) {
    return std::type_identity<Defined<TheOp, Shape>>();
  } else {
    return std::type_identity<DefinedFunction<TheOp, Shape>>();
  }
}

}  // namespace detail

// Defines TheOp from its declaration, and returns what the rest is added to.
//
//   kit::define<Forward>(m).implement<forward>().differentiate<ForwardFormula>();
//
// Shape is hand-written if the declaration has no output sizes. If the kit does not allocate what TheOp returns
// (Declaration::allocates), the function of `implement` returns it, and in place of Shape may be a function that
// returns it for tensors without values, for fake tensors and on the Meta device.
template <class TheOp, auto Shape = detail::default_shape<TheOp>()>
auto define(torch::Library& library, const std::vector<at::Tag>& tags = {at::Tag::pt2_compliant_tag}) {
  return typename decltype(detail::definition<TheOp, Shape>())::type(library, tags);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
