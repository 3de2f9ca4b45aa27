#pragma once

// The operators that are registered for an elementwise definition (math.h). For second::swish(Tensor x, float beta):
//
//   swish(Tensor x, float beta) -> Tensor
//   swish_(Tensor(a!) self, float beta) -> ()
//   swish.out(Tensor x, float beta, *, Tensor(a!) out) -> ()
//   _swish_backward(Tensor grad, Tensor x, float beta) -> Tensor
//
// With several inputs, the backward operator has one overload for each, named after the input. Each is one kernel
// without an output_mask: a gradient that is not requested costs nothing, and derivatives of any order are elementwise
// operators with one output.

#include <string_view>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/op.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// The texts of the operators, put together at compile time.
template <class Definition>
struct ElementwiseText {
  static constexpr auto forward = [] {
    FixedText<sizeof(Definition::schema) + 16> text;
    text.append(Definition::schema);
    text.append(" -> Tensor");
    return text;
  }();
  using Forward = Op<fixed_string<forward>()>;
  static constexpr const Declaration& declaration = Forward::declaration;

  static constexpr auto in_place = [] {
    FixedText<declaration.name.size() + 1> text;
    text.append(declaration.name);
    text.append("_");
    return text;
  }();
  static constexpr auto out = [] {
    FixedText<declaration.name.size() + 4> text;
    text.append(declaration.name);
    text.append(".out");
    return text;
  }();

  // "second::_swish_backward(Tensor grad, Tensor x, float beta) -> Tensor"; with several inputs, the name ends with
  // ".x".
  template <int Input>
  static constexpr auto backward = [] {
    FixedText<2 * sizeof(Definition::schema) + 64> text;
    const std::string_view name = declaration.name;
    const size_t colons = detail::find(name, "::") + 2;
    text.append(name.substr(0, colons));
    text.append("_");
    text.append(name.substr(colons));
    text.append("_backward");
    if (input_count<Definition> > 1) text.append(".");
    if (input_count<Definition> > 1) text.append(declaration.arguments[Input].name);
    text.append("(Tensor grad");
    if (Definition::saves == Saves::output) text.append(", Tensor output");
    for (const auto& a : declaration.arguments) {
      if (is_tensor(a.kind) && Definition::saves == Saves::output) continue;
      text.append(", ");
      append_argument(text, a);
    }
    text.append(") -> Tensor");
    return text;
  }();

  // Tensors, then floats: what math.h counts.
  static constexpr bool is_supported = [] {
    const auto& arguments = declaration.arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].kind != (i < size_t{input_count<Definition>} ? Kind::tensor : Kind::number)) return false;
    }
    return arguments.size() == size_t{input_count<Definition>} + size_t{attribute_count<Definition>};
  }();
  static_assert(is_supported, "an elementwise operator takes tensors, then floats");
};

}  // namespace detail

template <class Definition, class Type = typename detail::ElementwiseText<Definition>::Forward::Type>
struct ElementwiseOps;

template <class Definition, class... Args>
struct ElementwiseOps<Definition, Tensor(Args...)> {
  using Text = detail::ElementwiseText<Definition>;
  using Forward = typename Text::Forward;
  using InPlace = Op<fixed_string<Text::in_place>(), void(Args...)>;
  using Out = Op<fixed_string<Text::out>(), void(Args..., const Tensor& out)>;
  template <int Input>
  using Backward = Op<fixed_string<Text::template backward<Input>>()>;

  // The argument whose strides the gradient of an input gets: that input or, if it is not saved, the output.
  template <int Input>
  static constexpr int backward_like = Definition::saves == Saves::input ? 1 + Input : 1;
};

namespace detail {

// Calls f<Definition>() for each operator, and g<Definition, Input>() for each of its inputs.
template <class... Definitions, class F, class G>
void for_each_operator(Family<Definitions...>, F f, G g) {
  const auto inputs = [&]<class Definition, int... Input>(std::integer_sequence<int, Input...>) {
    (g.template operator()<Definition, Input>(), ...);
  };
  ((f.template operator()<Definitions>(),
    inputs.template operator()<Definitions>(std::make_integer_sequence<int, input_count<Definitions>>())),
   ...);
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

// The public C++ functions of an operator. The arguments are those of its schema: tensors, then numbers.
template <class Definition, class... Args>
Tensor call(const Args&... arguments) {
  using TheOp = typename ElementwiseOps<Definition>::Forward;
  detail::check_arguments<TheOp>(arguments...);
  return TheOp::call(arguments...);
}

template <class Definition, class... Args>
Tensor& call_in_place(Tensor& self, const Args&... arguments) {
  using TheOp = typename ElementwiseOps<Definition>::InPlace;
  detail::check_arguments<TheOp>(self, arguments...);
  TheOp::call(self, arguments...);
  return self;
}

template <class Definition, class... Args>
Tensor& call_out(Tensor& out, const Args&... arguments) {
  using TheOp = typename ElementwiseOps<Definition>::Out;
  detail::check_argument<TheOp>(sizeof...(Args), out);
  detail::check_arguments<TheOp>(arguments...);
  TheOp::call(arguments..., out);
  return out;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
