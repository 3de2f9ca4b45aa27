#pragma once

// The checks of an op's arguments, and its outputs before they have memory, derived from its declaration (schema.h).
// Only sizes, dtypes and devices are left to run time.

#include <array>
#include <span>
#include <type_traits>
#include <utility>

#include "cppcuda/kit/args.h"
#include "cppcuda/kit/check.h"
#include "cppcuda/kit/output.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// Pointers to the arguments of a call, whose types follow from the declaration.
using ArgumentPointers = const void* const*;

// Throws unless the arguments match the declaration. The returned Checker knows the sizes. Errors name `op`.
Checker check_arguments(const char* op, const Declaration& declaration, ArgumentPointers arguments);

// Throws unless a tensor in argument i is defined, strided, and of a dtype that it may have alone.
void check_dtype(const Checker& check, const Declaration& declaration, size_t i, std::string_view name,
                 const Tensor& t);

// Output number o of the arguments that were checked.
Output output_of(const Checker& checked, const Declaration& declaration, size_t o, ArgumentPointers arguments);

template <class TheOp>
auto addresses_of(const Args<TheOp>& args) {
  return std::apply([](const auto&... each) { return std::array<const void*, sizeof...(each)>{&each...}; }, args.all());
}

}  // namespace detail

namespace detail {

// Whether "..." stands for any dims of an operator's tensors.
template <class TheOp>
constexpr bool has_any_leading() {
  return has_any_leading(TheOp::declaration);
}

// Broadcasts the dims that "..." stands for in the tensor arguments of a call, and makes one dim of them, in the
// outputs too.
void flatten_leading(const Declaration& declaration, std::span<Tensor> arguments, std::span<Tensor> outputs);

}  // namespace detail

// The shape function of an operator whose outputs all have size patterns: an Output, or an array of them.
template <class TheOp>
auto outputs_of(const Args<TheOp>& args) {
  constexpr const Declaration& declaration = TheOp::declaration;
  constexpr size_t count = declaration.outputs.size();
  using Result = std::conditional_t<count == 1, Output, std::array<Output, count>>;
  const auto arguments = detail::addresses_of(args);
  const Checker checked = detail::check_arguments(TheOp::base_name(), declaration, arguments.data());
  return [&]<size_t... O>(std::index_sequence<O...>) {
    static_assert((!declaration.outputs[O].pattern.text().empty() && ...),
                  "an output without a pattern of sizes needs a shape function");
    return Result{detail::output_of(checked, declaration, O, arguments.data())...};
  }(std::make_index_sequence<count>());
}

// Only the checks, for shape functions that compute the outputs themselves.
template <class TheOp>
Checker checked(const Args<TheOp>& args) {
  return detail::check_arguments(TheOp::base_name(), TheOp::declaration, detail::addresses_of(args).data());
}

namespace detail {

// Allocates the outputs that are not given, and calls Function with the call's Args and the outputs. Those that
// output_mask excludes or that the operator hides are undefined there. If it flattens, Function sees one dim in place
// of those that "..." stands for.
template <class TheOp, auto Function, auto Shape, bool Flattens = false, class Type = typename TheOp::Type>
struct AllocatingKernel;

template <class TheOp, auto Function, auto Shape, bool Flattens, class R, class... As>
struct AllocatingKernel<TheOp, Function, Shape, Flattens, R(As...)> {
  static R run(As... all) {
    constexpr size_t count = tensor_count<R>;
    const GivenOutputs* const given = take_given_outputs(TheOp::name);
    const Args<TheOp> args(all...);
    const auto shape = Shape(args);
    Outputs<WithHidden<TheOp>> outputs;
    const auto allocate_where = [&](bool requested) {
      for (size_t o = 0; o < count; ++o) {
        if (is_requested_by<TheOp>(o, all...) != requested) continue;
        if constexpr (std::is_same_v<R, Tensor>) {
          outputs[o] = given_or_new(given, o, shape);
        } else {
          outputs[o] = given_or_new(given, o, shape[o]);
        }
      }
    };
    allocate_where(true);
    if constexpr (Flattens) {
      auto tensors = tensor_arguments(all...);
      auto rows = outputs;
      flatten_leading(WithHidden<TheOp>::declaration, tensors, rows);
      std::apply([&](const auto&... each) { Function(Args<WithHidden<TheOp>>(each...), rows); },
                 with_tensors(tensors.data(), all...));
    } else if constexpr (std::is_same_v<WithHidden<TheOp>, TheOp>) {
      Function(args, outputs);
    } else {
      Function(Args<WithHidden<TheOp>>(all...), outputs);
    }
    if constexpr ((is_output_mask<std::remove_cvref_t<As>> || ...)) allocate_where(false);
    return from_array<R>(std::move(outputs));
  }
};

}  // namespace detail

// void Function(const Args<TheOp>&, const Outputs<TheOp>&), of WithHidden if the operator hides outputs, for
// m.impl(TheOp::name, kit::kernel<...>()). Shape is that of kit::define.
template <class TheOp, auto Function, auto Shape = outputs_of<TheOp>>
constexpr auto kernel() {
  return TORCH_FN((detail::AllocatingKernel<TheOp, Function, Shape>::run));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
