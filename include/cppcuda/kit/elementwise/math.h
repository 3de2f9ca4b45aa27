#pragma once

// Elementwise operators: how to define one, and the functions that kernels evaluate. An operator is a struct in a
// header of its own:
//
//   struct Swish {
//     static constexpr char schema[] = "second::swish(Tensor x, float beta)";  // tensors first, then attributes
//
//     template <class A>
//     CPPCUDA_HOST_DEVICE static A forward(A x, A beta);
//   };
//
// A is the accumulation type, a vector of it (vec.h), a dual number of these (dual.h) or a tensor (tensor_value.h). All
// tensors have the same dtype, and their sizes broadcast. An attribute `float` is an A, `float?` a
// kit::OptionalNumber<A>, `int` an int64_t and `bool` a bool. First and second derivatives are computed in the loop,
// from dual numbers; higher ones by torch's operators, from the formula on tensors.
//
// An author may write derivatives, if that is more accurate or faster:
//
//   slope(x, beta)           d forward / d x
//   slopes(x, y)             the same for several tensors, as kit::PerInput<A, N>
//   slope_of_slope(x, beta)  d slope / d x, for one tensor
//
// `static constexpr auto saves = kit::Saves::output` says that slope reads the output of the operator instead of its
// one tensor, which is not kept alive.
//
// Under autocast, an operator of several tensors casts them to the widest dtype among them, and one of a single tensor
// keeps its dtype. One word chooses another policy (autocast.h); calls in place and with out= never cast:
//
//     static constexpr auto under_autocast = kit::CastPolicy::fp32;

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cppcuda/kit/autocast.h"
#include "cppcuda/kit/math/dual.h"
#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

enum class Saves { input, output };

// A value for each of N inputs, such as the derivative with respect to it.
template <class A, int N>
struct PerInput {
  A value[N];
};

// An attribute `float?` in a formula.
template <class A>
struct OptionalNumber {
  bool has_value = false;
  A value{};

  CPPCUDA_HOST_DEVICE A value_or(A other) const { return has_value ? value : other; }
};

// The operators of a library.
template <class... Definitions>
struct Family {};

namespace detail {

// Where the type of argument number i of a schema begins, or -1 if there are fewer arguments. (With sanitizers, gcc 12
// does not compare a pointer with null in constants.)
constexpr int argument_position(const char* schema, int i) {
  bool in_sizes = false;
  for (int at = 0; schema[at] != '\0' && schema[at] != ')'; ++at) {
    in_sizes = schema[at] == '[' || (in_sizes && schema[at] != ']');
    const bool is_first = schema[at] == '(' && schema[at + 1] != ')',
               is_next = !in_sizes && schema[at] == ',' && schema[at + 1] == ' ';
    if ((is_first || is_next) && i-- == 0) return at + (is_first ? 1 : 2);
  }
  return -1;
}

// Moves to the end of a text if it is there.
constexpr bool skip(const char* schema, int& at, const char* text) {
  int length = 0;
  while (text[length] != '\0' && schema[at + length] == text[length]) ++length;
  if (text[length] != '\0') return false;
  at += length;
  return true;
}

// Whether argument number i of a schema has this type.
constexpr bool has_type(const char* schema, int i, const char* type) {
  int at = argument_position(schema, i);
  return at >= 0 && skip(schema, at, type) && schema[at] == ' ';
}

// Whether all arguments are tensors, followed by attributes that formulas may have.
constexpr bool has_supported_types(const char* schema) {
  bool is_attribute = false;
  for (int i = 0; argument_position(schema, i) >= 0; ++i) {
    is_attribute = is_attribute || !has_type(schema, i, "Tensor");
    bool is_supported = !is_attribute;
    for (const char* const type : {"float", "float?", "int", "bool"}) is_supported |= has_type(schema, i, type);
    if (!is_supported) return false;
  }
  return true;
}

constexpr int count_arguments(const char* schema) {
  int count = 0;
  while (argument_position(schema, count) >= 0) ++count;
  return count;
}
constexpr int count_tensors(const char* schema) {
  int count = 0;
  for (int i = 0; i < count_arguments(schema); ++i) count += has_type(schema, i, "Tensor") ? 1 : 0;
  return count;
}

// What a declaration such as Tensor F[..., 3, 3] says of a tensor: the sizes after "...", of the values that it has for
// each element. That of a row, as in Tensor input[..., F], is a letter.
struct OwnSizes {
  int rank = 0;
  int64_t sizes[2] = {1, 1};
  bool is_valid = true;
  bool is_declared = false;  // whether there are any brackets
  char letter = 0;           // of a row
  bool is_one_row = false;   // [F]
  bool is_index = false;     // of dtype int32 or int64
  bool is_opmath = false;    // of the dtype of sums

  constexpr int count() const { return static_cast<int>(sizes[0] * sizes[1]); }
  constexpr bool is_row() const { return letter != 0; }
};

// The own sizes of the tensor whose declaration begins at this position.
constexpr OwnSizes own_sizes_at(const char* schema, int at) {
  const auto is_letter = [&] { return schema[at] >= 'A' && schema[at] <= 'Z'; };
  OwnSizes result;
  while (schema[at] != '[' && schema[at] != ',' && schema[at] != ')' && schema[at] != '\0') ++at;
  if (schema[at] != '[') return result;
  ++at;
  result.is_declared = true;
  result.is_one_row = is_letter();
  result.is_valid = result.is_one_row || skip(schema, at, "...");
  while (result.is_valid && (is_letter() || skip(schema, at, ", "))) {
    int size = is_letter() ? 1 : 0;
    if (is_letter()) result.letter = schema[at++];
    for (; schema[at] >= '0' && schema[at] <= '9'; ++at) size = 10 * size + (schema[at] - '0');
    result.is_valid = size > 0 && result.rank < (result.is_row() ? 1 : 2);
    if (result.is_valid) result.sizes[result.rank++] = size;
  }
  result.is_valid = result.is_valid && skip(schema, at, "]");
  result.is_index = skip(schema, at, " int32 or int64");
  result.is_opmath = skip(schema, at, " opmath");
  return result;
}

// Where the result is declared, after "-> ", or -1 if the schema ends before.
constexpr int result_position(const char* schema) {
  for (int at = 0; schema[at] != '\0'; ++at) {
    if (skip(schema, at, ") -> ")) return at;
  }
  return -1;
}

// The own sizes of tensor number i, or of the result if i is -1.
constexpr OwnSizes own_sizes(const char* schema, int i) {
  const int at = i < 0 ? result_position(schema) : argument_position(schema, i);
  return at < 0 ? OwnSizes{} : own_sizes_at(schema, at);
}

constexpr bool has_valid_sizes(const char* schema) {
  bool is_valid = true;
  for (int i = -1; i < count_tensors(schema); ++i) is_valid = is_valid && own_sizes(schema, i).is_valid;
  return is_valid;
}

// Whether it returns one tensor: nothing, or "-> Tensor" with sizes, comes after the arguments.
constexpr bool has_one_result(const char* schema, int size) {
  int at = result_position(schema);
  if (at < 0) return schema[size - 1] == ')';
  return skip(schema, at, "Tensor") && (at == size || (schema[at] == '[' && schema[size - 1] == ']'));
}

template <class Definition>
constexpr bool is_checked() {
  static_assert(has_supported_types(Definition::schema),
                "an elementwise operator takes tensors, then attributes of type float, float?, int or bool");
  static_assert(has_one_result(Definition::schema, sizeof(Definition::schema) - 1),
                "the schema of an elementwise operator ends with ')': it returns one tensor; or with its sizes, as in "
                "-> Tensor[..., 3]");
  static_assert(has_valid_sizes(Definition::schema),
                "the sizes of a tensor in a formula are [...], [..., 3] or [..., 3, 3], with positive numbers");
  return true;
}

// Whether a tensor or the result has sizes of its own, so that the formula computes with arrays (points.h).
template <class Definition>
inline constexpr bool is_of_points = [] {
  bool result = false;
  for (int i = -1; i < count_tensors(Definition::schema); ++i) {
    const OwnSizes own = own_sizes(Definition::schema, i);
    result = result || (own.rank > 0 && !own.is_row());
  }
  return result;
}();

template <class Definition>
constexpr bool saves_output() {
  if constexpr (requires { Definition::saves; }) {
    return Definition::saves == Saves::output;
  } else {
    return false;
  }
}

template <class Definition>
inline constexpr int input_count = count_tensors(Definition::schema);
template <class Definition>
inline constexpr int attribute_count = count_arguments(Definition::schema) - input_count<Definition>;

// The type of an attribute in the arguments of a kernel. It comes after the tensors.
template <class Definition, int I>
constexpr auto attribute_type() {
  constexpr int argument = input_count<Definition> + I;
  if constexpr (has_type(Definition::schema, argument, "float?")) {
    return OptionalNumber<double>();
  } else if constexpr (has_type(Definition::schema, argument, "int")) {
    return int64_t();
  } else if constexpr (has_type(Definition::schema, argument, "bool")) {
    return bool();
  } else {
    return double();
  }
}

template <int I, class T>
struct NumberedAttribute {
  T value;
};
template <class Definition, class I>
struct Attributes;
template <class Definition, int... I>
struct Attributes<Definition, std::integer_sequence<int, I...>>
    : NumberedAttribute<I, decltype(attribute_type<Definition, I>())>... {};

// The attributes of a formula.
template <class Definition>
struct WithAttributes {
  [[no_unique_address]] Attributes<Definition, std::make_integer_sequence<int, attribute_count<Definition>>> attributes;

 protected:
  // An attribute as the formula takes it.
  template <class A, int I>
  CPPCUDA_HOST_DEVICE auto attribute(std::integral_constant<int, I>) const {
    using T = decltype(attribute_type<Definition, I>());
    const T value = static_cast<const NumberedAttribute<I, T>&>(attributes).value;
    if constexpr (std::is_same_v<T, double>) {
      return A(value);
    } else if constexpr (std::is_same_v<T, OptionalNumber<double>>) {
      return OptionalNumber<A>{value.has_value, A(value.value)};
    } else {
      return value;
    }
  }
};

// The formula of an operator and its derivatives. Tensor arguments are parameters, attributes are members.
template <class Definition, class Inputs = std::make_integer_sequence<int, input_count<Definition>>,
          class Numbers = std::make_integer_sequence<int, attribute_count<Definition>>>
struct ElementwiseMath;

template <class Definition, int... Input, int... Number>
struct ElementwiseMath<Definition, std::integer_sequence<int, Input...>, std::integer_sequence<int, Number...>>
    : WithAttributes<Definition> {
  static_assert(is_checked<Definition>());
  static constexpr bool is_of_points = false, is_of_rows = false;
  // The operators' own tensors: the inputs or the output, of which there are as many.
  static constexpr int tensors = sizeof...(Input);
  static_assert(!saves_output<Definition>() || tensors == 1, "an operator that saves its output has one tensor");

  template <class A, class... As>
  CPPCUDA_HOST_DEVICE A value(A first, As... others) const {
    return Definition::forward(first, others..., this->template attribute<A>(number<Number>())...);
  }

  // The derivatives with respect to the inputs, from the tensors that are saved.
  template <class A, class... As>
  CPPCUDA_HOST_DEVICE PerInput<A, tensors> slopes(A first, As... others) const {
    constexpr bool has_slope =
        requires { Definition::slope(first, others..., this->template attribute<A>(number<Number>())...); };
    constexpr bool has_slopes =
        requires { Definition::slopes(first, others..., this->template attribute<A>(number<Number>())...); };
    if constexpr (has_slope_of_slope() && is_dual<A>) {
      return {slope_with_tangent(first)};
    } else if constexpr (has_slope) {
      return {Definition::slope(first, others..., this->template attribute<A>(number<Number>())...)};
    } else if constexpr (has_slopes) {
      return Definition::slopes(first, others..., this->template attribute<A>(number<Number>())...);
    } else {
      static_assert(!saves_output<Definition>(), "an operator that saves its output needs slope()");
      return {partial<Input>(first, others...)...};
    }
  }

 private:
  template <int I>
  using number = std::integral_constant<int, I>;

  static constexpr bool has_slope_of_slope() {
    return requires { &Definition::template slope_of_slope<double>; };
  }

  template <class A>
  CPPCUDA_HOST_DEVICE Dual<A> slope_with_tangent(Dual<A> x) const {
    return x.with(slopes(x.value).value[0], [&] {
      return Definition::slope_of_slope(x.value, this->template attribute<A>(number<Number>())...);
    });
  }

  // The derivative with respect to one input.
  template <int Of, class... As>
  CPPCUDA_HOST_DEVICE auto partial(As... inputs) const {
    return value(variable_if < Of == Input > (inputs)...).tangent;
  }
  template <bool IsVariable, class A>
  static CPPCUDA_HOST_DEVICE Dual<A> variable_if(A x) {
    if constexpr (IsVariable) {
      return Dual<A>(x, A(1));
    } else {
      return Dual<A>::constant(x);
    }
  }
};

// What the kernels compute: `outputs` values from `inputs` values, in the order of the operators' tensors.

template <class Definition>
struct ElementwiseForward : ElementwiseMath<Definition> {
  static constexpr int inputs = input_count<Definition>, outputs = 1;

  template <class A, class... As>
  CPPCUDA_HOST_DEVICE PerInput<A, 1> operator()(A first, As... others) const {
    return {this->value(first, others...)};
  }
};

// The gradients of the inputs, from that of the output and the saved tensors.
template <class Definition>
struct ElementwiseBackward : ElementwiseMath<Definition> {
  static constexpr int outputs = input_count<Definition>, inputs = 1 + outputs;

  template <class A, class... As>
  CPPCUDA_HOST_DEVICE PerInput<A, outputs> operator()(A grad, As... saved) const {
    PerInput<A, outputs> result = this->slopes(saved...);
    for (A& slope : result.value) slope = grad * slope;
    return result;
  }
};

// The derivatives of backward: the gradients of `grad` and of each saved tensor, from `grad`, the saved tensors and a
// direction for each input, the gradient of its gradient. With slopes s along the direction v they are the sum of
// v[i] s[i], and grad times the derivative of s[i] along v, because the derivative of s[i] with respect to x[j] is that
// of s[j] with respect to x[i].
template <class Definition>
struct ElementwiseDoubleBackward : ElementwiseMath<Definition> {
  static constexpr int tensors = input_count<Definition>, inputs = 1 + 2 * tensors, outputs = 1 + tensors;

  template <class A, class... As>
  CPPCUDA_HOST_DEVICE PerInput<A, outputs> operator()(A grad, As... others) const {
    const A all[] = {others...};
    return along(std::make_integer_sequence<int, tensors>(), grad, all, all + tensors);
  }

 private:
  template <int... I, class A>
  CPPCUDA_HOST_DEVICE PerInput<A, outputs> along(std::integer_sequence<int, I...>, A grad, const A* saved,
                                                 const A* direction) const {
    const PerInput<Dual<A>, tensors> slopes = this->slopes(Dual<A>(saved[I], direction[I])...);
    A sum = direction[0] * slopes.value[0].value;
    ((I > 0 ? static_cast<void>(sum = multiply_add(direction[I], slopes.value[I].value, sum)) : void()), ...);
    return {sum, A(grad * slopes.value[I].tangent)...};
  }
};

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
