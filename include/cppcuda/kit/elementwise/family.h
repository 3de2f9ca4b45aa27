#pragma once

// The operators that are registered for an elementwise definition (math.h). For second::swish(Tensor x, float beta):
//
//   swish(Tensor x, float beta) -> Tensor
//   swish_(Tensor(a!) self, float beta) -> Tensor(a!)                      -> () before torch 2.13 (variants.h)
//   swish.out(Tensor x, float beta, *, Tensor(a!) out) -> ()
//   _swish_backward(Tensor grad, Tensor x, float beta) -> Tensor
//   _swish_double_backward(Tensor? grad, Tensor x, Tensor grad_grad_x, float beta, bool[2] output_mask)
//       -> (Tensor, Tensor)
//
// With several inputs, _swish_backward has an output_mask and returns a gradient for each.

#include <string_view>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/elementwise/points.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/rows/family.h"
#include "cppcuda/kit/variants.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// The declarations of the operators, put together at compile time.
template <class Definition>
struct ElementwiseText {
  static_assert(is_checked<Definition>());

  static constexpr auto forward = [] {
    FixedText<sizeof(Definition::schema) + 16> text;
    text.append(Definition::schema);
    if (result_position(Definition::schema) < 0) text.append(" -> Tensor");
    return text;
  }();
  using Forward = Op<fixed_string<forward>()>;
  static constexpr const Declaration& declaration = Forward::declaration;

  static constexpr auto with(std::string_view suffix) {
    FixedText<declaration.name.size() + 4> text;
    text.append(declaration.name);
    text.append(suffix);
    return text;
  }
  static constexpr auto in_place = with("_"), out = with(".out");

  // The name of a tensor argument.
  template <int I>
  static constexpr auto name = [] {
    FixedText<declaration.arguments[I].name.size()> text;
    text.append(declaration.arguments[I].name);
    return text;
  }();
};

template <class Definition, class Inputs = std::make_integer_sequence<int, input_count<Definition>>>
struct ElementwiseDerivatives;

template <class Definition, int... I>
struct ElementwiseDerivatives<Definition, std::integer_sequence<int, I...>> {
  using Text = ElementwiseText<Definition>;
  // The names of an input, and of the tensor that is saved for it.
  template <int Input>
  static constexpr auto input = fixed_string<Text::template name<Input>>();
  template <int Input>
  static constexpr auto saved = [] {
    if constexpr (saves_output<Definition>()) {
      return FixedString("output");
    } else {
      return input<Input>;
    }
  }();
  using Backward = BackwardOf<typename Text::Forward, GradientReads<input<I>, saved<I>...>...>;
  // A missing gradient of a gradient is zeros.
  using DoubleBackward =
      BackwardOf<Backward, GradientReads<"grad", saved<I>...>, GradientReads<saved<I>, "grad", saved<I>...>...>;
};

}  // namespace detail

template <class Definition, class Type = typename detail::ElementwiseText<Definition>::Forward::Type>
struct ElementwiseOps;

template <class Definition, class... Args>
struct ElementwiseOps<Definition, Tensor(Args...)> {
  using Text = detail::ElementwiseText<Definition>;
  using Forward = typename Text::Forward;
  using InPlace = Op<detail::fixed_string<Text::in_place>(), detail::WrittenSelf(Args...)>;
  using Out = Op<detail::fixed_string<Text::out>(), void(Args..., const Tensor& out)>;
  using Backward = typename detail::ElementwiseDerivatives<Definition>::Backward;
  using DoubleBackward = typename detail::ElementwiseDerivatives<Definition>::DoubleBackward;
};

namespace detail {

// Sets the attributes of a function from number I on.
template <int I, class Math>
void set_attributes(Math&) {}

template <int I, class Math, class Arg, class... Args>
void set_attributes(Math& math, const Arg& arg, const Args&... args) {
  const auto set = [&]<class T>(T value) { static_cast<NumberedAttribute<I, T>&>(math.attributes).value = value; };
  if constexpr (std::is_same_v<Arg, double> || std::is_same_v<Arg, int64_t> || std::is_same_v<Arg, bool>) {
    set(arg);
    set_attributes<I + 1>(math, args...);
  } else if constexpr (std::is_same_v<Arg, std::optional<double>>) {
    set(OptionalNumber<double>{arg.has_value(), arg.value_or(0)});
    set_attributes<I + 1>(math, args...);
  } else {
    set_attributes<I>(math, args...);
  }
}

// The function of a call, whose attributes are among its arguments.
template <class Math, class... Args>
Math elementwise_math_of(const Args&... args) {
  Math math{};
  set_attributes<0>(math, args...);
  return math;
}

// torch's own error for an undefined tensor does not name the argument.
template <class TheOp>
void check_argument(size_t i, const Tensor& t) {
  if (!t.defined()) check_defined(op_name(TheOp::schema()), TheOp::schema().arguments()[i].name().c_str(), t);
}

template <class TheOp, class... Args>
void check_arguments(const Args&... arguments) {
  size_t i = 0;
  auto check_next = [&]<class T>(const T& argument) {
    if constexpr (std::is_same_v<T, Tensor>) check_argument<TheOp>(i, argument);
    ++i;
  };
  (check_next(arguments), ...);
}

}  // namespace detail

namespace detail {

template <class Definition>
struct OpsOfFormula : std::type_identity<ElementwiseOps<Definition>> {};
template <class Definition>
  requires is_of_rows<Definition>
struct OpsOfFormula<Definition> : std::type_identity<RowOps<Definition>> {};

}  // namespace detail

// The operators of a formula.
template <class Definition>
using OpsOf = typename detail::OpsOfFormula<Definition>::type;

// The public C++ functions of an operator. The arguments are those of its schema: tensors, then numbers.
template <class Definition, class... Args>
auto call(const Args&... arguments) {
  using TheOp = typename OpsOf<Definition>::Forward;
  detail::check_arguments<TheOp>(arguments...);
  return TheOp::call(arguments...);
}

template <class Definition, class... Args>
Tensor& call_in_place(Tensor& self, const Args&... arguments) {
  using TheOp = typename OpsOf<Definition>::InPlace;
  detail::check_arguments<TheOp>(self, arguments...);
  TheOp::call(self, arguments...);
  return self;
}

template <class Definition, class... Args>
Tensor& call_out(Tensor& out, const Args&... arguments) {
  using TheOp = typename OpsOf<Definition>::Out;
  detail::check_argument<TheOp>(sizeof...(Args), out);
  detail::check_arguments<TheOp>(arguments...);
  TheOp::call(arguments..., out);
  return out;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
