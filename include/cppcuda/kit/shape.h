#pragma once

// The checks of an op's arguments, and its outputs before they have memory, derived from its declaration (schema.h).
// Only sizes, dtypes and devices are left to run time.

#include <array>
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

template <class TheOp>
constexpr bool has_any_leading() {
  const auto& arguments = TheOp::declaration.arguments;
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& a) { return a.pattern.has_any_leading(); });
}

}  // namespace detail

// The shape function of an operator whose outputs all have size patterns: an Output, or an array of them.
template <class TheOp>
auto outputs_of(const Args<TheOp>& args) {
  constexpr const Declaration& declaration = TheOp::declaration;
  constexpr size_t count = declaration.outputs.size();
  static_assert(!detail::has_any_leading<TheOp>(), "only the tensors of a formula may have ... among their sizes");
  using Result = std::conditional_t<count == 1, Output, std::array<Output, count>>;
  const auto arguments = detail::addresses_of(args);
  const Checker checked = detail::check_arguments(TheOp::base_name(), declaration, arguments.data());
  return [&]<size_t... O>(std::index_sequence<O...>) {
    static_assert(((declaration.outputs[O].pattern.rank() > 0 || declaration.outputs[O].pattern.text() == "[]") && ...),
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
// output_mask excludes or that the operator hides are undefined there.
template <class TheOp, auto Function, auto Shape, class Type = typename TheOp::Type>
struct AllocatingKernel;

template <class TheOp, auto Function, auto Shape, class R, class... As>
struct AllocatingKernel<TheOp, Function, Shape, R(As...)> {
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
    if constexpr (std::is_same_v<WithHidden<TheOp>, TheOp>) {
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
