#pragma once

// An author of derivatives writes formulas; autograd.h makes the kernel of an operator from them. A formula is a
// struct in the operator's autograd.cpp:
//
//   struct Formula {
//     using Op = ...;  // a kit::Op
//     // For the gradient of each tensor argument: the names of the arguments and outputs that it reads.
//     static constexpr auto reads = kit::reads<Op>({{"feats", {"points"}}, {"points", {"feats", "points"}}});
//     static Inputs<Op> vjp(const Outputs<Op>& grads, const Saved<Formula>& saved, const Need<Op>& need);
//     static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved<Formula>& saved);
//   };
//
// Inputs and Outputs are arrays of Tensor, Need is an array of bool. The names in the op's declaration are their
// indices (names.h): saved["points"], need["feats"].
//
// vjp and jvp call differentiable ops only; every higher order follows from that. Undefined tensors stand for zeros,
// among grads and tangents and in what is returned. Arguments that are not tensors reach the formulas as
// saved.attribute<"name">() and saved.config(), as owned values. `static auto attributes(const kit::Args<Op>&)`, if the
// struct has it, returns a tuple of more, whose names are `static constexpr auto attribute_names = kit::names("size")`.

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cppcuda/kit/args.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// sum += term, where undefined tensors are zero.
inline void accumulate(Tensor& sum, const Tensor& term) {
  if (term.defined()) sum = sum.defined() ? sum + term : term;
}

// Converts to the accumulation type, for formulas with several terms.
inline Tensor in_opmath(const Tensor& t) { return t.to(at::toOpMathType(t.scalar_type())); }

// The bool[N] output_mask of a backward op.
using OutputMask = std::vector<bool>;

// Another bool[] argument.
struct BoolList : std::vector<bool> {
  using std::vector<bool>::vector;
  operator c10::List<bool>() const { return to_list(*this); }  // NOLINT: as the other lists
};

namespace detail {

// Copies an attribute, because it outlives its call.
inline std::string to_owned(std::string_view v) { return std::string(v); }
// A device has no default constructor.
inline std::optional<at::Device> to_owned(std::optional<at::Device> v) { return v; }
inline std::optional<at::Device> to_owned(at::Device v) { return v; }
template <class T>
std::vector<T> to_owned(at::ArrayRef<T> v) {
  return v.vec();
}
template <class T>
std::optional<std::vector<T>> to_owned(at::OptionalArrayRef<T> v) {
  return v.has_value() ? std::optional(v->vec()) : std::nullopt;
}
template <class T>
T to_owned(T v) {
  return v;
}
template <class T>
auto to_owned(const std::optional<T>& v) -> std::optional<decltype(to_owned(*v))> {
  if (v.has_value()) return to_owned(*v);
  return std::nullopt;
}

// The attribute that argument number I of TheOp is, in a tuple; an empty one for a tensor.
template <class TheOp, size_t I, class Arg>
auto owned_attribute(const Arg& arg) {
  if constexpr (is_tensor_argument<Arg>) {
    return std::tuple<>();
  } else if constexpr (is_output_mask<Arg> && is_mask_of<TheOp>(I)) {
    return std::tuple<OutputMask>(arg.vec());
  } else if constexpr (is_output_mask<Arg>) {
    return std::tuple<BoolList>(BoolList(arg.begin(), arg.end()));
  } else {
    return std::make_tuple(to_owned(arg));
  }
}

// The attributes of all arguments, in a tuple.
template <class TheOp, class... Args>
auto owned_attributes(const Args&... args) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::tuple_cat(owned_attribute<TheOp, I>(args)...);
  }(std::index_sequence_for<Args...>());
}

template <class Formula, class... Args>
auto attributes_of(const Args&... args) {
  using Op = typename Formula::Op;
  if constexpr (requires(const kit::Args<Op>& call) { Formula::attributes(call); }) {
    return std::tuple_cat(owned_attributes<Op>(args...), Formula::attributes(kit::Args<Op>(args...)));
  } else {
    return owned_attributes<Op>(args...);
  }
}

// The place of an attribute in Saved: those of the op, then the formula's own. Their number if none has this name.
template <class Formula>
consteval size_t find_attribute(std::string_view name) {
  const Declaration& d = Formula::Op::declaration;
  const size_t own = d.arguments.size() - d.tensor_count(), argument = d.find_argument(name);
  if (argument < d.arguments.size() && !is_tensor(d.arguments[argument].kind)) {
    return argument - d.tensor_index(argument);
  }
  if constexpr (requires { Formula::attribute_names; }) {
    const auto& names = Formula::attribute_names;
    return own + static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  } else {
    return own;
  }
}

template <class Formula, class Type = typename Formula::Op::Type>
struct AttributesOf;

template <class Formula, class R, class... Args>
struct AttributesOf<Formula, R(Args...)> {
  using type = decltype(attributes_of<Formula>(std::declval<Args>()...));
};

}  // namespace detail

// The names of a formula's own attributes.
template <class... Literals>
consteval auto names(Literals... literals) {
  return std::array<std::string_view, sizeof...(Literals)>{literals...};
}

// The tensors and attributes of the forward call that a formula sees: in vjp the tensors named in `reads`, in jvp all.
template <class Formula>
struct Saved {
  using Op = typename Formula::Op;

  Inputs<Op> inputs;
  Outputs<Op> outputs;
  typename detail::AttributesOf<Formula>::type attributes;

  // The tensor with this name in the declaration.
  const Tensor& operator[](TensorKey<Op> key) const { return key.is_output ? outputs[key.index] : inputs[key.index]; }

  // Several tensors: `const auto [x, p] = saved.get<"feats", "points">()`.
  template <FixedString... Names>
  auto get() const {
    return std::tie((*this)[TensorKey<Op>(Names.value)]...);
  }

  // Whether output_mask requests the output.
  bool is_requested(OutputKey<Op> key) const {
    return std::apply([&](const auto&... a) { return kit::is_requested(key.index, a...); }, attributes);
  }

  // The arguments that the Config in the op's declaration names. It may refer to strings of this object.
  auto config() const {
    constexpr const Declaration& d = Op::declaration;
    return detail::config_from<Op, d.config_first - d.tensor_index(d.config_first)>(attributes);
  }

  // An argument that is no tensor, or an attribute of the formula's own.
  template <FixedString Name>
  const auto& attribute() const {
    constexpr size_t index = detail::find_attribute<Formula>(Name.view());
    if constexpr (index == std::tuple_size_v<decltype(attributes)>) attribute_index<Op, Name>();  // says what is wrong
    return std::get<index>(attributes);
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
