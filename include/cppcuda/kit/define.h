#pragma once

// The parts of an operator's registration that are derived from its declaration: the schema, the Meta kernel, the
// batching rule, what autocast does, and a clear error on every backend without a kernel.

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <string>
#include <string_view>

#include "cppcuda/kit/autocast.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/shape.h"
#include "cppcuda/kit/vmap.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class TheOp, auto Shape, class Type = typename TheOp::Type>
struct MetaKernel;

template <class TheOp, auto Shape, class R, class... Args>
struct MetaKernel<TheOp, Shape, R(Args...)> {
  static R run(Args... args) {
    if constexpr (std::is_same_v<R, Tensor>) {
      return allocate(Shape(args...));
    } else {
      return from_array<R>(allocate(Shape(args...)));
    }
  }
};

// Throws an error that names the argument that is sparse, quantized, or on a device without kernels in this build.
// `indices` has a bit for each argument that is a tensor of indices.
void refuse_backend(const c10::OperatorHandle& op, torch::jit::Stack* stack, unsigned indices);

template <class TheOp>
void refuse_backend(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr unsigned indices = [] {
    unsigned result = 0;
    if constexpr (requires { TheOp::declaration; }) {
      const auto& arguments = TheOp::declaration.arguments;
      for (size_t i = 0; i < arguments.size(); ++i) result |= unsigned{arguments[i].is_index} << i;
    }
    return result;
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

// Defines the operator _sharding_rule.<name of TheOp>, which returns that name and the rule: cppcuda.distributed reads
// it.
template <class TheOp>
void define_sharding(torch::Library& library, const std::string& rule) {
  const std::string name(TheOp::base_name());
  define_text(library, "_sharding_rule", name, name + " " + rule);
}

// The text of a declaration, and a line for each policy: "wider points", "reads points feats" (the gradient of points
// reads feats), "independent NF", "autocast promote". cppcuda.testing derives samples and errors from it.
std::string describe(std::string_view text, const Declaration& declaration);

// In a TORCH_LIBRARY_FRAGMENT. Shape maps the op's arguments to its Output (an array of them for a
// tuple) and checks the arguments on the way; the CPU and CUDA kernels call it too.
template <class TheOp, auto Shape>
void define(torch::Library& library, const char* schema,
            const std::vector<at::Tag>& tags = {at::Tag::pt2_compliant_tag}) {
  define_schema<TheOp>(library, schema, tags);
  library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::Meta, TORCH_FN((MetaKernel<TheOp, Shape>::run))));
  library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                            torch::CppFunction::makeFromBoxedFunction<&refuse_backend<TheOp>>()));
}

// Defines TheOp from its declaration, with its batching rule and its autocast policy. Shape is hand-written if the
// declaration has no output sizes.
template <class TheOp, auto Shape = kit::Shape<TheOp>::outputs>
void define(torch::Library& library, const std::vector<at::Tag>& tags = {at::Tag::pt2_compliant_tag}) {
  define<TheOp, Shape>(library, TheOp::torch_schema, tags);
  library.impl(TheOp::name, torch::dispatch(c10::DispatchKey::FuncTorchBatched, vmap<TheOp, Shape>()));
  define_autocast<cast_policy(TheOp::declaration), wide_arguments(TheOp::declaration)>(library, TheOp::name);
  if (TheOp::sharding_rule[0] != 0) define_sharding<TheOp>(library, TheOp::sharding_rule);
  constexpr std::string_view name = TheOp::declaration.name;
  define_text(library, "_declaration", name.substr(schema::find(name, "::") + 2),
              describe(TheOp::text, TheOp::declaration));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
