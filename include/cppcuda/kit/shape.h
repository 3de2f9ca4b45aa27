#pragma once

// The checks of an op's arguments, and its outputs before they have memory, derived from its declaration (schema.h).
// Only sizes, dtypes and devices are left to run time.

#include <array>
#include <type_traits>
#include <utility>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/output.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Pointers to the arguments of a call, whose types follow from the declaration.
using Arguments = const void* const*;

// Throws unless the arguments match the declaration. The returned Checker knows the sizes. Errors name `op`.
Checker check_arguments(const char* op, const Declaration& declaration, Arguments arguments);

// Output number o of the arguments that were checked.
Output output_of(const Checker& checked, const Declaration& declaration, size_t o, Arguments arguments);

template <class TheOp, class Type = typename TheOp::Type>
class Shape;

template <class TheOp, class R, class... Args>
class Shape<TheOp, R(Args...)> {
  static constexpr const Declaration& declaration = TheOp::declaration;

 public:
  static Checker check(const char* op, const Args&... args) {
    return check_arguments(op, declaration, std::array<const void*, sizeof...(Args)>{&args...}.data());
  }

  using Outputs = std::conditional_t<std::is_same_v<R, Tensor>, Output, std::array<Output, declaration.outputs.size()>>;

  // Errors name `op`.
  static Outputs outputs_as(const char* op, const Args&... args) {
    const std::array<const void*, sizeof...(Args)> arguments{&args...};
    const Checker checked = check_arguments(op, declaration, arguments.data());
    return [&]<size_t... O>(std::index_sequence<O...>) {
      static_assert(
          ((declaration.outputs[O].pattern.rank() > 0 || declaration.outputs[O].pattern.text() == "[]") && ...),
          "an output without a pattern of sizes needs a shape function");
      return Outputs{output_of(checked, declaration, O, arguments.data())...};
    }(std::make_index_sequence<declaration.outputs.size()>());
  }

  // The shape function of an operator whose outputs all have size patterns.
  static Outputs outputs(Args... args) { return outputs_as(TheOp::base_name(), args...); }
};

// Only the checks, for hand-written shape functions.
template <class TheOp, class... Args>
Checker checked(const Args&... args) {
  return Shape<TheOp>::check(TheOp::base_name(), args...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
