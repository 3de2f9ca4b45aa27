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

// Throws an error that names the argument that is sparse, quantized, or on a device without kernels in this build.
// `indices` has a bit for each argument that is a tensor of indices.
void refuse_backend(const c10::OperatorHandle& op, torch::jit::Stack* stack, unsigned indices);

template <class TheOp>
void refuse_backend(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr unsigned indices = [] {
    if constexpr (requires { TheOp::declaration; }) return index_arguments(TheOp::declaration);
    return 0U;
  }();
  refuse_backend(op, stack, indices);
}

// Casts the arguments of a call under autocast, and runs the operator with autocast disabled. `wide` has a bit for each
// argument that becomes float32 if it has 16 bits.
void run_under_autocast(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack,
                        CastPolicy policy, unsigned wide);

template <CastPolicy Policy, unsigned Wide>
void autocast_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  run_under_autocast(op, keys, stack, Policy, Wide);
}

template <CastPolicy Policy, unsigned Wide = 0>
void define_autocast(torch::Library& library, const char* name) {
  if constexpr (Policy != CastPolicy::none) {
    for (const auto key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}) {
      library.impl(name,
                   torch::dispatch(key, torch::CppFunction::makeFromBoxedFunction<&autocast_kernel<Policy, Wide>>()));
    }
  }
}

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
  library.impl(TheOp::name,
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                               torch::CppFunction::makeFromBoxedFunction<&detail::refuse_backend<TheOp>>()));
}

namespace detail {

// What follows from TheOp's declaration: schema, Meta kernel, batching rule, autocast policy and sharding rule.
template <class TheOp, auto Shape>
void define_declared(torch::Library& library, const std::vector<at::Tag>& tags) {
  define<TheOp, Shape>(library, TheOp::torch_schema, tags);
  library.impl(TheOp::name,
               torch::dispatch(c10::DispatchKey::FuncTorchBatched, vmap<TheOp, by_position<TheOp, Shape>()>()));
  define_autocast<cast_policy(TheOp::declaration), wide_arguments(TheOp::declaration)>(library, TheOp::name);
  constexpr std::string_view name = base_name(TheOp::declaration);
  if (TheOp::sharding_rule[0] != 0) define_sharding(library, name, TheOp::sharding_rule);
  define_text(library, "_declaration", name, describe(TheOp::text, TheOp::declaration));
}

// The kernel of an operator that only writes to its arguments.
template <class TheOp, auto Function, class Type = typename TheOp::Type>
struct WritingKernel;

template <class TheOp, auto Function, class... As>
struct WritingKernel<TheOp, Function, void(As...)> {
  static void check(As... all) { check_call(Args<TheOp>(all...), tensor_arguments(all...), /*has_memory=*/false); }

  static void run(As... all) {
    const Args<TheOp> args(all...);
    check_call(args, tensor_arguments(all...), /*has_memory=*/true);
    Function(args);
  }

 private:
  static void check_call(const Args<TheOp>& args, at::ArrayRef<Tensor> tensors, bool has_memory) {
    checked(args);
    check_written(TheOp::schema(), tensors, has_memory);
  }
};

// An operator that only writes, to which its kernels are added. It has no derivatives.
template <class TheOp>
class DefinedWriter {
 public:
  explicit DefinedWriter(torch::Library& library) : library_(library) {
    define_schema<TheOp>(library, TheOp::torch_schema, {at::Tag::pt2_compliant_tag});
    implement_writer(library, TheOp::declaration, TheOp::name);
  }

  // The kernels for every device that has some: void Function(const Args<TheOp>&).
  template <auto Function>
  const DefinedWriter& implement() const {
    if (has_cuda_kernels()) add(c10::DispatchKey::CUDA, TORCH_FN((WritingKernel<TheOp, Function>::run)));
    return implement_cpu<Function>();
  }

  template <auto Function>
  const DefinedWriter& implement_cpu() const {
    add(c10::DispatchKey::Meta, TORCH_FN((WritingKernel<TheOp, Function>::check)));
    add(c10::DispatchKey::CPU, TORCH_FN((WritingKernel<TheOp, Function>::run)));
    return *this;
  }

 private:
  template <class Function>
  void add(c10::DispatchKey key, Function function) const {
    library_.impl(TheOp::name, torch::dispatch(key, std::move(function)));
  }

  torch::Library& library_;
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
    kit::implement<TheOp>(library_, kernel<TheOp, Function, Shape>());
    if constexpr (hides) kit::implement<Inner>(library_, kernel<Inner, Function>());
    return *this;
  }

  template <auto Function>
  const Defined& implement_cpu() const {
    add<TheOp>(c10::DispatchKey::CPU, kernel<TheOp, Function, Shape>());
    if constexpr (hides) add<Inner>(c10::DispatchKey::CPU, kernel<Inner, Function>());
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
  template <class Op, class Function>
  void add(c10::DispatchKey key, Function function) const {
    library_.impl(Op::name, torch::dispatch(key, std::move(function)));
  }

  torch::Library& library_;
};

}  // namespace detail

// Defines TheOp from its declaration, and returns what the rest is added to. Shape is hand-written if the declaration
// has no output sizes.
//
//   kit::define<Forward>(m).implement<forward>().differentiate<ForwardFormula>();
template <class TheOp, auto Shape = outputs_of<TheOp>>
  requires(TheOp::declaration.outputs.size() > 0)
detail::Defined<TheOp, Shape> define(torch::Library& library,
                                     const std::vector<at::Tag>& tags = {at::Tag::pt2_compliant_tag}) {
  return detail::Defined<TheOp, Shape>(library, tags);
}

// The same for an operator that only writes to its arguments:
//
//   kit::define<Store>(m).implement<store>();
template <class TheOp>
  requires(TheOp::declaration.outputs.size() == 0)
detail::DefinedWriter<TheOp> define(torch::Library& library) {
  return detail::DefinedWriter<TheOp>(library);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
