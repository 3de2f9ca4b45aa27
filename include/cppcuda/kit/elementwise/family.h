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

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/op.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Equivalent to text.find(c), which gcc does not evaluate at compile time under UBSan.
constexpr size_t find(std::string_view text, char c) {
  size_t i = 0;
  while (i < text.size() && text[i] != c) ++i;
  return i;
}

// "second::swish"
template <class Definition>
constexpr std::string_view full_name() {
  const std::string_view schema(Definition::schema);
  return schema.substr(0, find(schema, '('));
}

// "Tensor x, float beta"
template <class Definition>
constexpr std::string_view argument_list() {
  const std::string_view schema(Definition::schema);
  const size_t begin = find(schema, '(') + 1;
  return schema.substr(begin, find(schema, ')') - begin);
}

// "Tensor x" and so on.
constexpr std::string_view argument(std::string_view list, int i) {
  for (; i > 0; --i) list.remove_prefix(find(list, ',') + 2);
  return list.substr(0, find(list, ','));
}

// "x"
template <class Definition>
constexpr std::string_view input_name(int i) {
  const std::string_view text = argument(argument_list<Definition>(), i);
  return text.substr(find(text, ' ') + 1);
}

// The name of an operator, put together at compile time.
struct OpName {
  char text[128] = {};
  size_t size = 0;

  constexpr OpName(std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) {
      for (const char c : part) text[size++] = c;
    }
  }
};

template <class Definition>
constexpr OpName forward_name() {
  return {full_name<Definition>()};
}

template <class Definition>
constexpr OpName in_place_name() {
  return {full_name<Definition>(), "_"};
}

template <class Definition>
constexpr OpName out_name() {
  return {full_name<Definition>(), ".out"};
}

// "second::_swish_backward", or with ".x".
template <class Definition, int Input>
constexpr OpName backward_name() {
  const std::string_view full = full_name<Definition>(), space = full.substr(0, find(full, ':') + 2);
  const bool one = input_count<Definition> == 1;
  return {space, "_", full.substr(space.size()), "_backward", one ? "" : ".", one ? "" : input_name<Definition>(Input)};
}

template <OpName (*Name)()>
consteval auto fixed_string() {
  constexpr OpName name = Name();
  char text[name.size + 1] = {};
  std::copy_n(name.text, name.size, text);
  return FixedString<name.size + 1>(text);
}

template <int>
using TensorArgument = const Tensor&;
template <int>
using FloatArgument = double;

template <class Definition, class Inputs = std::make_integer_sequence<int, input_count<Definition>>,
          class Saved = std::make_integer_sequence<int, saved_count<Definition>>,
          class Floats = std::make_integer_sequence<int, attribute_count<Definition>>>
struct ElementwiseOps;

template <class Definition, int... I, int... S, int... F>
struct ElementwiseOps<Definition, std::integer_sequence<int, I...>, std::integer_sequence<int, S...>,
                      std::integer_sequence<int, F...>> {
  static_assert(sizeof...(I) + sizeof...(F) == 1 + std::ranges::count(argument_list<Definition>(), ','),
                "an elementwise operator takes tensors, then floats");

  using Forward = Op<fixed_string<forward_name<Definition>>(), Tensor(TensorArgument<I>..., FloatArgument<F>...)>;
  using InPlace = Op<fixed_string<in_place_name<Definition>>(), void(TensorArgument<I>..., FloatArgument<F>...)>;
  using Out =
      Op<fixed_string<out_name<Definition>>(), void(TensorArgument<I>..., FloatArgument<F>..., const Tensor& out)>;
  template <int Input>
  using Backward = Op<fixed_string<backward_name<Definition, Input>>(),
                      Tensor(const Tensor& grad, TensorArgument<S>..., FloatArgument<F>...)>;

  // The argument whose strides the gradient of an input gets: that input or, if it is not saved, the output.
  template <int Input>
  static constexpr int backward_like = Definition::saves == Saves::input ? 1 + Input : 1;
};

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

// The public C++ functions of an operator. The arguments are those of its schema: tensors, then numbers.
template <class Definition, class... Args>
Tensor call(const Args&... arguments) {
  using TheOp = typename ElementwiseOps<Definition>::Forward;
  check_arguments<TheOp>(arguments...);
  return TheOp::call(arguments...);
}

template <class Definition, class... Args>
Tensor& call_in_place(Tensor& self, const Args&... arguments) {
  using TheOp = typename ElementwiseOps<Definition>::InPlace;
  check_arguments<TheOp>(self, arguments...);
  TheOp::call(self, arguments...);
  return self;
}

template <class Definition, class... Args>
Tensor& call_out(Tensor& out, const Args&... arguments) {
  using TheOp = typename ElementwiseOps<Definition>::Out;
  check_argument<TheOp>(sizeof...(Args), out);
  check_arguments<TheOp>(arguments...);
  TheOp::call(arguments..., out);
  return out;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
