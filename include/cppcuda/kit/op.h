#pragma once

// A typed handle to a registered operator, from its declaration (schema.h):
//
//   kit::Op<"cppcuda::trilinear(Tensor feats[B?, N, 8, F], Tensor points[B?, N, 3]) -> Tensor[B?, N, F]">
//
// or kit::Op<"cppcuda::sigmoid", Tensor(const Tensor&)>. Overloads have names such as "cppcuda::sigmoid.out". A tensor
// that an operator writes to is a const Tensor& too. The name is part of the type, so templates over two operators
// never share an instance, not even across libraries.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cppcuda/kit/names.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace detail {

// The functions that call TheOp.
template <class TheOp, class Signature>
class Callable {
 public:
  // Goes through every dispatch key, like a user's call. If the declaration has a Config, it may stand for its members.
  template <class... Args>
  static auto call(Args&&... args) {
    if constexpr ((is_config<Args> || ...)) {
      return std::apply([](const auto&... each) { return handle().call(each...); }, std::tuple_cat(expanded(args)...));
    } else {
      return handle().call(std::forward<Args>(args)...);
    }
  }

  // For kernels: goes to the keys below.
  template <class... Args>
  static auto redispatch(c10::DispatchKeySet keys, Args&&... args) {
    return handle().redispatch(keys, std::forward<Args>(args)...);
  }

  static const c10::FunctionSchema& schema() { return handle().schema(); }

  // The name without its namespace.
  static constexpr const char* base_name() {
    constexpr size_t colons = kit::detail::find(TheOp::name, "::");
    return TheOp::name + colons + 2;
  }

 private:
  template <class T>
  static constexpr bool is_config = [] {
    if constexpr (requires { TheOp::declaration; }) {
      return std::is_same_v<std::remove_cvref_t<T>, typename TheOp::Config>;
    }
    return false;
  }();

  template <class T>
  static auto expanded(const T& arg) {
    if constexpr (is_config<T>) {
      return members<TheOp::declaration.config_count>(arg);
    } else {
      return std::tie(arg);
    }
  }

  static const c10::TypedOperatorHandle<Signature>& handle() {
    static const auto op = find();
    return op;
  }

  static c10::TypedOperatorHandle<Signature> find() {
    const std::string_view full(TheOp::name);
    const auto dot = full.find('.');
    const std::string base(full.substr(0, dot));
    const std::string overload(dot == full.npos ? "" : full.substr(dot + 1));
    return c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), overload.c_str()).template typed<Signature>();
  }
};

// The C++ types of attribute_types.
using AttributeTypes =
    std::tuple<std::string_view, std::optional<std::string_view>, at::ArrayRef<std::string>, int64_t,
               std::optional<int64_t>, at::IntArrayRef, at::OptionalIntArrayRef, c10::SymInt,
               std::optional<c10::SymInt>, c10::SymIntArrayRef, at::OptionalSymIntArrayRef, double,
               std::optional<double>, at::ArrayRef<double>, std::optional<at::ArrayRef<double>>, bool,
               std::optional<bool>, c10::List<bool>, const at::Scalar&, const std::optional<at::Scalar>&,
               at::ScalarType, std::optional<at::ScalarType>, at::Device, std::optional<at::Device>,
               std::optional<at::Layout>, std::optional<at::MemoryFormat>, std::optional<at::Generator>>;
static_assert(std::tuple_size_v<AttributeTypes> == std::size(attribute_types));

// The C++ type of an argument.
template <Kind K, size_t Attribute>
struct CppType : std::tuple_element<Attribute, AttributeTypes> {};
template <size_t Attribute>
struct CppType<Kind::tensor, Attribute> : std::type_identity<const Tensor&> {};
template <size_t Attribute>
struct CppType<Kind::optional_tensor, Attribute> : std::type_identity<const OptionalTensor&> {};
template <size_t Attribute>
struct CppType<Kind::tensors, Attribute> : std::type_identity<at::TensorList> {};
template <size_t Attribute>
struct CppType<Kind::optional_tensors, Attribute> : std::type_identity<const c10::List<OptionalTensor>&> {};
template <size_t Attribute>
struct CppType<Kind::maybe_tensors, Attribute> : std::type_identity<std::optional<at::TensorList>> {};
template <size_t Attribute>
struct CppType<Kind::mask, Attribute> : std::type_identity<c10::List<bool>> {};
template <class Base, size_t I>
using CppTypeOf = typename CppType<Base::declaration.arguments[I].kind, Base::declaration.arguments[I].attribute>::type;

// The C++ type of a result.
template <class T>
struct Returned : std::type_identity<T> {};
template <>
struct Returned<std::string_view> : std::type_identity<std::string> {};
template <class T>
struct Returned<at::ArrayRef<T>> : std::type_identity<std::vector<T>> {};
template <class Base, size_t O>
using ResultOf = typename Returned<std::remove_cvref_t<
    typename CppType<Base::declaration.outputs[O].kind, Base::declaration.outputs[O].attribute>::type>>::type;

template <class Base, size_t... O>
auto result_type(std::index_sequence<O...>) {
  if constexpr (sizeof...(O) == 0) {
    return std::type_identity<void>();
  } else if constexpr (sizeof...(O) == 1) {
    return std::type_identity<ResultOf<Base, O>...>();
  } else {
    return std::type_identity<std::tuple<ResultOf<Base, O>...>>();
  }
}

// What an operator returns.
template <class Base>
using ResultsOf =
    typename decltype(result_type<Base>(std::make_index_sequence<Base::declaration.outputs.size()>()))::type;

template <class Base, size_t... I>
auto signature(std::index_sequence<I...>) {
  using Result = ResultsOf<Base>;
  return std::type_identity<Result(CppTypeOf<Base, I>...)>();
}

// The C++ function type of a declaration.
template <class Base>
using SignatureOf =
    typename decltype(signature<Base>(std::make_index_sequence<Base::declaration.arguments.size()>()))::type;

}  // namespace detail

template <FixedString Text, class... Policies>
struct Op : OpBase<Text, Policies...>,
            detail::Callable<Op<Text, Policies...>, detail::SignatureOf<OpBase<Text, Policies...>>> {
  using Type = detail::SignatureOf<OpBase<Text, Policies...>>;
  using Result = detail::ResultsOf<OpBase<Text, Policies...>>;  // a tuple if there are several
};

// An operator with hidden outputs, and the internal operator that returns them. Its caller has cast the arguments.
template <FixedString Text, class... Policies>
  requires(detail::hides_outputs(Text.view()))
struct Op<Text, Policies...> : Op<detail::fixed_string<detail::HiddenText<Text, false>::text>(), Policies...> {
  static_assert(detail::hidden_outputs_come_last(Text.view()), "hidden outputs come after the others");
  using WithHidden =
      Op<detail::fixed_string<detail::HiddenText<Text, true>::text>(), Policies..., UnderAutocast<CastPolicy::promote>>;
};

namespace detail {

template <class TheOp>
struct Whole : std::type_identity<TheOp> {};
template <class TheOp>
  requires requires { typename TheOp::WithHidden; }
struct Whole<TheOp> : std::type_identity<typename TheOp::WithHidden> {};

}  // namespace detail

// The operator that returns all outputs: TheOp itself if it hides none.
template <class TheOp>
using WithHidden = typename detail::Whole<TheOp>::type;

namespace detail {

template <class TheOp, class... Policies>
struct Backward;
template <FixedString Text, class... Inherited, class... Policies>
struct Backward<Op<Text, Inherited...>, Policies...> {
  using TheOp = Op<Text, Inherited...>;
  static constexpr auto text = fixed_string<detail::BackwardText<TheOp, WithHidden<TheOp>, Policies...>::text>();

  template <class... All>
  static auto op(std::tuple<All...>) -> Op<text, All...>;
  template <class Policy>
  using IfInherited = std::conditional_t<Policy::is_inherited, std::tuple<Policy>, std::tuple<>>;
  using type = decltype(op(std::tuple_cat(std::declval<IfInherited<Inherited>>()..., std::tuple<Policies...>())));
};

}  // namespace detail

// The operator that computes the gradients of TheOp. Each GradientReads among the policies is one of its outputs:
//
//   using Backward = kit::BackwardOf<Forward, kit::GradientReads<"feats", "points">,
//                                    kit::GradientReads<"points", "feats", "points">>;
//
// Its name is _<name>_backward, or _<name>_double_backward for a backward operator. Its arguments are the gradients of
// the outputs, the outputs and inputs that gradients read, `size` with the sizes that these do not say, TheOp's other
// arguments (but those that Without names), and output_mask if there are several gradients. The gradients of gradients,
// grad_grad_<name>, come after the inputs. A tensor that not every gradient reads is optional; a missing gradient of an
// output is zeros.
template <class TheOp, class... Policies>
using BackwardOf = typename detail::Backward<TheOp, Policies...>::type;

// An operator by name and C++ type. The code that a declaration would generate is written by hand.
template <FixedString Name, class R, class... Args>
struct Op<Name, R(Args...)> : detail::Callable<Op<Name, R(Args...)>, R(Args...)> {
  using Type = R(Args...);
  static constexpr const char* name = Name.value;  // with its namespace
};

namespace detail {

template <class T>
inline constexpr bool is_tensor_argument =
    std::is_same_v<std::remove_cvref_t<T>, Tensor> || std::is_same_v<std::remove_cvref_t<T>, OptionalTensor>;

inline Tensor tensor_or_undefined(const Tensor& t) { return t; }
inline Tensor tensor_or_undefined(const OptionalTensor& t) { return t.value_or(Tensor()); }

inline const Tensor* address_of(const Tensor& t) { return &t; }
inline const Tensor* address_of(const OptionalTensor& t) { return t.has_value() ? &*t : nullptr; }

// The tensor arguments of a call, in order. Missing optional ones are undefined.
template <class... Args>
auto tensor_arguments(const Args&... args) {
  std::array<Tensor, (size_t{is_tensor_argument<Args>} + ... + 0)> result;
  size_t i = 0;
  auto append = [&](const auto& arg) {
    if constexpr (is_tensor_argument<decltype(arg)>) result[i++] = tensor_or_undefined(arg);
  };
  (append(args), ...);
  return result;
}

template <class T>
inline constexpr bool is_output_mask = std::is_same_v<T, c10::List<bool>> || std::is_same_v<T, std::vector<bool>>;

// Whether argument number i of TheOp is its output_mask, given that its type is that of one.
template <class TheOp>
constexpr bool is_mask_of(size_t i) {
  if constexpr (requires { TheOp::declaration; }) return TheOp::declaration.arguments[i].kind == Kind::mask;
  return true;
}

}  // namespace detail

inline OptionalTensor to_optional(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

// Converts to a bool[N] argument.
template <class Mask>
c10::List<bool> to_list(const Mask& mask) {
  c10::List<bool> result;
  for (const bool b : mask) result.push_back(b);
  return result;
}

// Whether output o is requested, given the arguments or attributes of a call. Outputs that output_mask masks out are
// empty placeholders; callers must ignore their batch, gradient and tangent.
template <class... Values>
bool is_requested([[maybe_unused]] size_t o, const Values&... values) {
  bool result = true;
  [[maybe_unused]] auto look = [&]<class T>(const T& value) {
    if constexpr (detail::is_output_mask<T>) result = value[o];
  };
  (look(values), ...);
  return result;
}

// The same for all arguments of a call of TheOp, which may have other lists of bool.
template <class TheOp, class... Args>
bool is_requested_by([[maybe_unused]] size_t o, const Args&... args) {
  [[maybe_unused]] size_t i = 0;
  bool result = true;
  [[maybe_unused]] const auto look = [&]<class T>(const T& arg) {
    if constexpr (detail::is_output_mask<T>) {
      if (detail::is_mask_of<TheOp>(i)) result = arg[o];
    }
    ++i;
  };
  (look(args), ...);
  return result;
}

// Operators return a Tensor or a tuple of tensors; shared code uses arrays.
inline std::array<Tensor, 1> to_array(Tensor t) { return {std::move(t)}; }

template <class... Ts>
std::array<Tensor, sizeof...(Ts)> to_array(std::tuple<Ts...> tensors) {
  return std::apply([](auto&&... t) { return std::array<Tensor, sizeof...(Ts)>{std::move(t)...}; }, std::move(tensors));
}

namespace detail {

template <class R>
inline constexpr size_t tensor_count = 1;
template <>
inline constexpr size_t tensor_count<void> = 0;
template <class... Ts>
inline constexpr size_t tensor_count<std::tuple<Ts...>> = sizeof...(Ts);

// The first tensors, as many as R has.
template <class R, size_t N>
R from_array(std::array<Tensor, N>&& tensors) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return R{std::move(tensors[I])...};
  }(std::make_index_sequence<tensor_count<R>>());
}

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
