#pragma once

// Formulas of rows: operators that compute with the last dim of their tensors. An operator is a struct in a header of
// its own:
//
//   namespace kit = cppcuda::kit;
//
//   struct RmsNorm {
//     static constexpr char schema[] =
//         "my_ops::rms_norm(Tensor input[..., F], Tensor weight[F], float eps) -> "
//         "(Tensor output[..., F], hidden Tensor rstd[...] opmath)";
//
//     template <class Row, class In, class A>
//     CPPCUDA_HOST_DEVICE static void forward(const Row& row, const In& input, const In& weight, A eps, auto& output,
//                                             A& rstd) {
//       rstd = A(1) / kit::sqrt(row.mean([&](auto f) { return input[f] * input[f]; }) + eps);
//       row.for_each([&](auto f) { output.set(f, rstd * input[f] * weight[f]); });
//     }
//   };
//
// A tensor [..., F] has a row for each element of the result's other dims, which broadcast; [F] is one row for all.
// [...] has a number for each row, and [...] int32 or int64 an index of a value in it. The formula gets the row, the
// tensors, the attributes and the outputs; a number is an A. (nvcc 13.0 crashes if more than nine parameters are
// `auto`.) A hidden output is what backward reads of forward's statistics; the operator
// does not return it. `opmath` means that it has the type of sums.
//
// What a formula may do. f stands for places in the row: a few, as many as a register has, or all.
//
//   row.size(), row.number(x)        the number of values in the row; x as a number of the formula
//   input[f], output.set(f, value)   every value of an output is set once
//   row.for_each(do)                 do(f) for all places
//   row.sum(of), mean(of), max(of)   the sum, mean or greatest of of(f); the sum or mean of an Array has all parts
//   row.keep(of)                     k such that k[f] is of(f), which is computed once if that is faster; k.sum()
//   row.at(input, index)             the value at an index; 0 if that is -1, NaN on CUDA if there is no such place
//   row.has(index)                   0 if an index is -1, otherwise 1
//   row.is_at(f, index)              1 at an index, 0 elsewhere
//   row.is_before(f, n)              1 at the first n places, 0 after them
//   row.rolled(input, f, n)          the value n places after f, or that many places before the end of the row
//
// Everything may be computed again and in any order, so formulas must not change what they capture, except by set().
//
// backward(row, grad..., tensors..., hidden outputs..., attributes..., gradients...) computes the gradients of the
// tensors that are not indices, for the row; the kit adds those of tensors that broadcast. Without it, derivatives are
// computed by torch's operators from forward on tensors, and so are all others: those in forward mode, and of higher
// order. `static constexpr auto saves = kit::Saves::output` says that backward reads all outputs instead of the tensor.

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/functions.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// Where output number o is declared, or -1 if there are fewer.
constexpr int output_position(const char* schema, int o) {
  int at = result_position(schema);
  for (; at >= 0 && schema[at] != '\0'; ++at) {
    int end = at;
    if (skip(schema, end, "Tensor") && o-- == 0) return at;
  }
  return -1;
}

constexpr int count_outputs(const char* schema) {
  int count = 0;
  while (output_position(schema, count) >= 0) ++count;
  return count;
}

constexpr bool is_hidden_output(const char* schema, int o) {
  int at = output_position(schema, o) - 7;
  return at >= 0 && skip(schema, at, "hidden ");
}

constexpr OwnSizes own_sizes_of_output(const char* schema, int o) {
  return own_sizes_at(schema, output_position(schema, o));
}

// Whether a tensor has rows, so that the formula computes with them.
template <class Definition>
inline constexpr bool is_of_rows = [] {
  bool result = false;
  for (int i = 0; i < count_tensors(Definition::schema); ++i) {
    result = result || own_sizes(Definition::schema, i).is_row();
  }
  return result;
}();

// The name `backward` is ambiguous here if the formula has it, whatever its parameters are.
struct NamedBackward {
  int backward;
};
template <class Definition>
struct WithNamedBackward : Definition, NamedBackward {};

template <class Definition>
struct RowSchema {
  static constexpr auto& schema = Definition::schema;
  static constexpr int tensors = input_count<Definition>, results = count_outputs(schema);
  static constexpr int visible = [] {
    int count = 0;
    for (int o = 0; o < results; ++o) count += is_hidden_output(schema, o) ? 0 : 1;
    return count;
  }();
  static constexpr bool has_backward = !requires { &WithNamedBackward<Definition>::backward; };

  // The tensors that have gradients.
  static constexpr int gradients = [] {
    int count = 0;
    for (int i = 0; i < tensors; ++i) count += own_sizes(schema, i).is_index ? 0 : 1;
    return count;
  }();
  static constexpr auto differentiable = [] {
    std::array<int, static_cast<size_t>(gradients)> result{};
    int count = 0;
    for (int i = 0; i < tensors; ++i) {
      if (!own_sizes(schema, i).is_index) result[count++] = i;
    }
    return result;
  }();

  static constexpr bool has_valid_tensors() {
    const char letter = own_sizes(schema, 0).letter;
    for (int t = 0; t < tensors + results; ++t) {
      const OwnSizes own = t < tensors ? own_sizes(schema, t) : own_sizes_of_output(schema, t - tensors);
      if (!own.is_valid || !own.is_declared || (own.is_row() ? own.letter != letter || own.is_index : own.rank > 0))
        return false;
    }
    return true;
  }

  static_assert(has_supported_types(schema),
                "a formula of rows takes tensors, then attributes of type float, float?, int or bool");
  static_assert(results > 0, "the schema of a formula of rows has the sizes of its outputs, as in -> Tensor[..., F]");
  static_assert(own_sizes(schema, 0).is_row() && !own_sizes(schema, 0).is_one_row,
                "the first tensor of a formula of rows is [..., F]");
  static_assert(has_valid_tensors(),
                "each tensor and output of a formula of rows has its sizes, [..., F], [F], [...] or [...] int32 or "
                "int64, with the same letter in all");
  static_assert(!saves_output<Definition>() || (tensors == 1 && results == visible),
                "an operator that saves its outputs has one tensor and no hidden output");
  static_assert(has_backward || results == visible, "a hidden output is for backward(), which this formula lacks");
};

// What kernels compute of a row. `own` says what the outputs, followed by the inputs, are.
template <class Definition>
struct RowMath : WithAttributes<Definition> {
  static constexpr bool is_of_points = true, is_of_rows = true;  // tensors have dims of their own
  int64_t features;                                              // the number of values in a row

 protected:
  using Schema = RowSchema<Definition>;

  // Calls f with the attributes.
  template <class Value, class F>
  CPPCUDA_HOST_DEVICE void with_attributes(F f) const {
    [&]<int... N>(std::integer_sequence<int, N...>) {
      f(this->template attribute<Value>(std::integral_constant<int, N>())...);
    }(std::make_integer_sequence<int, attribute_count<Definition>>());
  }
};

template <class Definition>
struct RowForward : RowMath<Definition> {
  using Schema = RowSchema<Definition>;
  static constexpr int tensors = Schema::tensors, inputs = tensors, outputs = Schema::results;
  // The operator's own tensors among the inputs, which broadcast.
  static constexpr int first_own = 0, own_count = tensors;
  static constexpr bool is_backward = false;
  static constexpr auto own = [] {
    std::array<OwnSizes, outputs + inputs> result{};
    for (int o = 0; o < outputs; ++o) result[o] = own_sizes_of_output(Definition::schema, o);
    for (int i = 0; i < inputs; ++i) result[outputs + i] = own_sizes(Definition::schema, i);
    return result;
  }();

  // in(number) is an input and out(number) an output as the formula takes them.
  template <class Row, class In, class Out>
  CPPCUDA_HOST_DEVICE void operator()(const Row& row, In in, Out out) const {
    [&]<int... I, int... O>(std::integer_sequence<int, I...>, std::integer_sequence<int, O...>) {
      this->template with_attributes<typename Row::Value>([&](auto... attributes) {
        constexpr bool fits = requires {
          Definition::forward(row, in(std::integral_constant<int, I>())..., attributes...,
                              out(std::integral_constant<int, O>())...);
        };
        static_assert(fits,
                      "forward() takes the row, then the tensors, the attributes and the outputs of the schema; a row "
                      "that it sets is an auto&, and a number that it sets an A&");
        if constexpr (fits) {
          Definition::forward(row, in(std::integral_constant<int, I>())..., attributes...,
                              out(std::integral_constant<int, O>())...);
        }
      });
    }(std::make_integer_sequence<int, inputs>(), std::make_integer_sequence<int, outputs>());
  }
};

// The gradients, from those of the outputs that the operator returns, the outputs that are saved, and the tensors.
template <class Definition>
struct RowBackward : RowMath<Definition> {
  using Schema = RowSchema<Definition>;
  static constexpr bool is_backward = true, saves_output = detail::saves_output<Definition>();
  static constexpr int grads = Schema::visible, first_saved = saves_output ? 0 : grads,
                       saved = Schema::results - first_saved, tensors = saves_output ? 0 : Schema::tensors;
  static constexpr int inputs = grads + saved + tensors, outputs = Schema::gradients;
  static constexpr int first_own = saves_output ? inputs - 1 : grads + saved, own_count = saves_output ? 1 : tensors;
  static constexpr auto own = [] {
    std::array<OwnSizes, outputs + inputs> result{};
    for (int o = 0; o < outputs; ++o) result[o] = own_sizes(Definition::schema, Schema::differentiable[o]);
    for (int g = 0; g < grads; ++g) result[outputs + g] = own_sizes_of_output(Definition::schema, g);
    for (int s = 0; s < saved; ++s) {
      result[outputs + grads + s] = own_sizes_of_output(Definition::schema, first_saved + s);
    }
    for (int i = 0; i < tensors; ++i) result[outputs + grads + saved + i] = own_sizes(Definition::schema, i);
    return result;
  }();

  template <class Row, class In, class Out>
  CPPCUDA_HOST_DEVICE void operator()(const Row& row, In in, Out out) const {
    [&]<int... G, int... S, int... I, int... O>(std::integer_sequence<int, G...>, std::integer_sequence<int, S...>,
                                                std::integer_sequence<int, I...>, std::integer_sequence<int, O...>) {
      this->template with_attributes<typename Row::Value>([&](auto... attributes) {
        constexpr bool fits = requires {
          Definition::backward(
              row, in(std::integral_constant<int, G>())..., in(std::integral_constant<int, grads + saved + I>())...,
              in(std::integral_constant<int, grads + S>())..., attributes..., out(std::integral_constant<int, O>())...);
        };
        static_assert(fits,
                      "backward() takes the row, then the gradients of the outputs, the tensors, the hidden outputs, "
                      "the attributes, and the gradients of the tensors, which it sets");
        if constexpr (fits) {
          Definition::backward(
              row, in(std::integral_constant<int, G>())..., in(std::integral_constant<int, grads + saved + I>())...,
              in(std::integral_constant<int, grads + S>())..., attributes..., out(std::integral_constant<int, O>())...);
        }
      });
    }(std::make_integer_sequence<int, grads>(), std::make_integer_sequence<int, saved>(),
      std::make_integer_sequence<int, tensors>(), std::make_integer_sequence<int, outputs>());
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
