#pragma once

// Formulas (autograd.h) address tensors by the names of a declaration: tangents["points"], reads. The compiler looks
// names up; a wrong one does not compile. This header includes nothing of torch.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cppcuda/kit/derive.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Bit masks of the inputs and outputs that one gradient reads. No other tensor is kept alive for it.
struct Reads {
  uint64_t inputs = 0;
  uint64_t outputs = 0;
};

namespace detail {

constexpr size_t find_output(const Declaration& d, std::string_view name) {
  size_t o = 0;
  const auto is_named = [&] {
    if (!d.outputs[o].is_gradient) return d.output_name(o) == name;
    return name.starts_with("grad(") && name.ends_with(')') && name.substr(5, name.size() - 6) == d.outputs[o].name;
  };
  while (o < d.outputs.size() && !is_named()) ++o;
  return o;
}

constexpr size_t find_input(const Declaration& d, std::string_view name) {
  const auto at = std::find_if(d.arguments.begin(), d.arguments.end(),
                               [&](const auto& a) { return is_tensor(a.kind) && a.name == name; });
  return static_cast<size_t>(at - d.arguments.begin());
}

}  // namespace detail

// The index of a tensor argument.
template <class TheOp>
struct InputKey {
  size_t index;
  consteval InputKey(const char* name) {  // NOLINT: literals convert
    const Declaration& d = TheOp::declaration;
    const size_t argument = detail::find_input(d, name);
    require(argument < d.arguments.size(), "no tensor among the arguments has this name", name);
    index = d.tensor_index(argument);
  }
};

template <class TheOp>
struct OutputKey {
  size_t index;
  consteval OutputKey(const char* name)  // NOLINT: literals convert
      : index(detail::find_output(TheOp::declaration, name)) {
    require(index < TheOp::declaration.outputs.size(), "no output has this name", name);
  }
};

// The index of a tensor argument or of an output.
template <class TheOp>
struct TensorKey {
  size_t index;
  bool is_output;
  consteval TensorKey(const char* name)  // NOLINT: literals convert
      : index(detail::find_output(TheOp::declaration, name)), is_output(index < TheOp::declaration.outputs.size()) {
    if (!is_output) {
      const Declaration& d = TheOp::declaration;
      const size_t argument = detail::find_input(d, name);
      require(argument < d.arguments.size(), "no tensor among the arguments and outputs has this name", name);
      index = d.tensor_index(argument);
    }
  }
};

// An array with an entry for each input or each output, by position or by name.
template <class T, size_t N, class Key>
struct Named : std::array<T, N> {
  using Array = std::array<T, N>;
  using Array::operator[];

  Named() : Array{} {}
  Named(const Array& values) : Array(values) {}  // NOLINT: formulas may return an array
  template <class... Ts>
    requires(sizeof...(Ts) == N && N > 0 && (std::is_convertible_v<Ts, T> && ...))
  Named(Ts... values) : Array{static_cast<T>(std::move(values))...} {}  // NOLINT: as an array

  T& operator[](Key key) { return Array::operator[](key.index); }
  const T& operator[](Key key) const { return Array::operator[](key.index); }

  // Several tensors: `const auto [x, p] = tangents.get<"feats", "points">()`.
  template <FixedString... Names>
  auto get() const {
    return std::tie((*this)[Key(Names.value)]...);
  }
};

// The index of an argument among all arguments.
template <class TheOp, FixedString Name>
consteval size_t argument_index() {
  const size_t argument = TheOp::declaration.find_argument(Name.view());
  require(argument < TheOp::declaration.arguments.size(), "no argument has this name", Name.view());
  return argument;
}

// The index of an argument that is not a tensor among all arguments that are not.
template <class TheOp, FixedString Name>
consteval size_t attribute_index() {
  const Declaration& d = TheOp::declaration;
  const size_t argument = argument_index<TheOp, Name>();
  require(!is_tensor(d.arguments[argument].kind), "this argument is a tensor", Name.view());
  return argument - d.tensor_index(argument);
}

namespace detail {

// The Config of an operator, from the values in a tuple, of which the first one has index First.
template <class TheOp, size_t First, class... Values>
typename TheOp::Config config_from(const std::tuple<Values...>& values) {
  static_assert(!std::is_void_v<typename TheOp::Config>, "the operator's declaration has no Config");
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return typename TheOp::Config{std::get<First + I>(values)...};
  }(std::make_index_sequence<TheOp::declaration.config_count>());
}

// Adds the tensors that have no gradient, such as indices: every gradient reads them.
template <class TheOp>
consteval auto with_indices(std::array<Reads, TheOp::declaration.tensor_count()> reads) {
  const Declaration& d = TheOp::declaration;
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    if (!is_tensor(d.arguments[i].kind) || d.is_differentiable(d.arguments[i])) continue;
    for (Reads& gradient : reads) gradient.inputs |= uint64_t{1} << d.tensor_index(i);
  }
  return reads;
}

// An entry of `reads`: the input that a gradient belongs to, and the inputs and outputs that the gradient reads.
template <class TheOp>
struct GradientOf {
  InputKey<TheOp> input;
  std::initializer_list<TensorKey<TheOp>> reads;
};

}  // namespace detail

// The reads that the declaration of the backward operator says (GradientReads); with the tensors that it requires, if a
// formula always calls it.
template <class TheOp, class Backward>
consteval auto reads_of(bool with_required = false) {
  const Declaration& d = TheOp::declaration;
  std::array<Reads, d.tensor_count()> result{};
  for (const Gradient& gradient : Backward::gradients) {
    Reads& reads = result[d.tensor_index(detail::find_input(d, gradient.of))];
    const auto add = [&](std::string_view name) {
      const size_t output = detail::find_output(d, name), input = detail::find_input(d, name);
      if (output < d.outputs.size()) {
        reads.outputs |= uint64_t{1} << output;
      } else if (input < d.arguments.size()) {
        reads.inputs |= uint64_t{1} << d.tensor_index(input);
      }  // else the gradient of an output
    };
    for (const std::string_view name : gradient.reads) add(name);
    for (const Argument& a : Backward::declaration.arguments) {
      if (with_required && a.kind == Kind::tensor) add(a.name);
    }
  }
  return detail::with_indices<TheOp>(result);
}

template <class TheOp>
consteval auto reads(std::initializer_list<detail::GradientOf<TheOp>> gradients) {
  std::array<Reads, TheOp::declaration.tensor_count()> result{};
  for (const auto& gradient : gradients) {
    for (const auto& key : gradient.reads) {
      (key.is_output ? result[gradient.input.index].outputs : result[gradient.input.index].inputs) |= uint64_t{1}
                                                                                                      << key.index;
    }
  }
  return detail::with_indices<TheOp>(result);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
