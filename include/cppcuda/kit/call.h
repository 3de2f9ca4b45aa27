#pragma once

// Calls of operators from formulas, with arguments that are set by name, and the formula of an operator whose gradients
// are one call of BackwardOf's operator (op.h).

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "cppcuda/kit/formula.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class TheOp, class Type = typename TheOp::Type>
class Call;

// The arguments of a call. The tensors are undefined and the attributes 0 at first.
template <class TheOp, class R, class... As>
class Call<TheOp, R(As...)> {
 public:
  using Attributes = decltype(detail::owned_attributes<TheOp>(std::declval<As>()...));

  Inputs<TheOp> tensors;
  Attributes attributes{};

  Call() = default;

  // Takes the tensors and attributes that have the names of arguments.
  template <class Formula>
  explicit Call(const Saved<Formula>& saved) {
    using From = typename Formula::Op;
    copy_tensors<From>([&](size_t i) -> const Tensor& { return saved.inputs[i]; });
    copy_outputs<From>(saved.outputs);
    for_each_attribute([&]<size_t To>(std::integral_constant<size_t, To>) {
      constexpr size_t from = detail::find_attribute<Formula>(name_of_attribute(To));
      if constexpr (from < std::tuple_size_v<decltype(saved.attributes)>) {
        std::get<To>(attributes) = std::get<from>(saved.attributes);
      }
    });
  }
  template <class Other>
  explicit Call(const Call<Other>& call) {
    copy_tensors<Other>([&](size_t i) -> const Tensor& { return call.tensors[i]; });
    for_each_attribute([&]<size_t To>(std::integral_constant<size_t, To>) {
      constexpr const Declaration& d = Other::declaration;
      constexpr size_t from = d.find_argument(name_of_attribute(To));
      if constexpr (from < d.arguments.size())
        std::get<To>(attributes) = std::get<from - d.tensor_index(from)>(call.attributes);
    });
  }

  template <FixedString Name>
  auto& attribute() {
    return std::get<attribute_index<TheOp, Name>()>(attributes);
  }
  template <FixedString Name>
  const auto& attribute() const {
    return std::get<attribute_index<TheOp, Name>()>(attributes);
  }

  Outputs<TheOp> run() const {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Outputs<TheOp>(to_array(TheOp::call(argument<I>()...)));
    }(std::make_index_sequence<sizeof...(As)>());
  }

 private:
  static constexpr size_t count = std::tuple_size_v<Attributes>;

  static consteval std::string_view name_of_attribute(size_t attribute) {
    const Declaration& d = TheOp::declaration;
    size_t i = 0;
    while (is_tensor(d.arguments[i].kind) || i - d.tensor_index(i) < attribute) ++i;
    return d.arguments[i].name;
  }

  template <class F>
  static void for_each_attribute(F f) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      (f(std::integral_constant<size_t, I>()), ...);
    }(std::make_index_sequence<count>());
  }

  // For each tensor, the one of From with the same name; their number if there is none.
  template <class From>
  static constexpr auto inputs_of = [] {
    std::array<size_t, detail::Counts<R(As...)>::inputs> result{};
    const Declaration &to = TheOp::declaration, &from = From::declaration;
    for (size_t i = 0; i < result.size(); ++i) {
      const size_t argument = detail::find_input(from, to.arguments[to.tensor_argument(i)].name);
      result[i] = argument < from.arguments.size() ? from.tensor_index(argument) : from.tensor_count();
    }
    return result;
  }();

  template <class From, class Tensors>
  void copy_tensors(const Tensors& from) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (inputs_of<From>[i] < From::declaration.tensor_count()) tensors[i] = from(inputs_of<From>[i]);
    }
  }

  template <class From>
  void copy_outputs(const Outputs<From>& outputs) {
    const Declaration &to = TheOp::declaration, &from = From::declaration;
    for (size_t o = 0; o < outputs.size(); ++o) {
      const size_t argument =
          from.outputs[o].is_gradient ? to.arguments.size() : detail::find_input(to, from.output_name(o));
      if (argument < to.arguments.size()) tensors[to.tensor_index(argument)] = outputs[o];
    }
  }

  template <size_t I>
  auto argument() const {
    constexpr const Declaration& d = TheOp::declaration;
    constexpr Kind kind = d.arguments[I].kind;
    if constexpr (kind == Kind::tensor) {
      return tensors[d.tensor_index(I)];
    } else if constexpr (kind == Kind::optional_tensor) {
      return to_optional(tensors[d.tensor_index(I)]);
    } else if constexpr (kind == Kind::mask) {
      return to_list(std::get<I - d.tensor_index(I)>(attributes));
    } else {
      using Type = detail::CppTypeOf<TheOp, I>;
      const auto& value = std::get<I - d.tensor_index(I)>(attributes);
      if constexpr (std::is_same_v<Type, at::Device>) {
        return *value;
      } else {
        return Type(value);
      }
    }
  }
};

// The attribute `size` of a formula of TheOp, if Backward has this argument and TheOp has not.
template <class TheOp, class Backward>
struct SizeFor {};

template <class TheOp, class Backward>
  requires(Backward::declaration.find_argument("size") < Backward::declaration.arguments.size() &&
           TheOp::declaration.find_argument("size") == TheOp::declaration.arguments.size())
struct SizeFor<TheOp, Backward> {
  static constexpr auto attribute_names = names("size");

  static auto attributes(const Args<TheOp>& args) {
    std::vector<c10::SymInt> size;
    for (const auto& [tensor, dim] : dims) size.push_back(args.tensor(tensor).sym_size(dim));
    return std::make_tuple(std::move(size));
  }

 private:
  struct Dim {
    size_t tensor;
    int64_t dim;
  };
  static constexpr Dim find(char letter) {
    const Declaration& d = TheOp::declaration;
    for (size_t t = 0; t < d.tensor_count(); ++t) {
      const Pattern& pattern = d.arguments[d.tensor_argument(t)].pattern;
      for (size_t i = 0; i < pattern.rank(); ++i) {
        if (pattern.letter(i) == letter) return {t, static_cast<int64_t>(i) - static_cast<int64_t>(pattern.rank())};
      }
    }
    require(false, "no dim of an argument is this letter alone", {&letter, 1});
    return {};
  }
  static constexpr auto dims = [] {
    constexpr const Pattern& size =
        Backward::declaration.arguments[Backward::declaration.find_argument("size")].pattern;
    std::array<Dim, size.rank()> result{};
    for (size_t i = 0; i < result.size(); ++i) result[i] = find(size.letter(i));
    return result;
  }();
};

// A formula (formula.h) whose vjp is a call of Backward, which is BackwardOf<TheOp, ...>. It lacks jvp.
template <class TheOp, class Backward>
struct GradientsBy : SizeFor<TheOp, Backward> {
  using Op = TheOp;
  static constexpr auto reads = reads_of<TheOp, Backward>(/*with_required=*/true);

  static Inputs<Op> vjp(const Outputs<Op>& grads, const auto& saved, const Need<Op>& need) {
    // Other inputs have no gradients.
    if (std::none_of(inputs.begin(), inputs.end(), [&](size_t i) { return need[i]; })) return {};
    Call<Backward> call(saved);
    for (size_t o = 0; o < gradients.size(); ++o) {
      if (gradients[o] < call.tensors.size()) call.tensors[gradients[o]] = grads[o];
    }
    if constexpr (inputs.size() > 1) {
      auto& mask = call.template attribute<"output_mask">();
      mask.clear();
      for (const size_t input : inputs) mask.push_back(need[input]);
    }
    Outputs<Backward> found = call.run();
    Inputs<Op> result;
    for (size_t o = 0; o < inputs.size(); ++o) {
      if (need[inputs[o]]) result[inputs[o]] = std::move(found[o]);
    }
    return result;
  }

 private:
  // The tensor argument of Backward that is the gradient of each output; their number if the output has none.
  static constexpr auto gradients = [] {
    const auto& outputs = TheOp::declaration.outputs;
    std::array<size_t, outputs.size()> result{};
    for (size_t o = 0; o < result.size(); ++o) {
      detail::FixedText<64> name;
      detail::append_gradient_name(name, outputs[o], outputs.size());
      result[o] = Backward::declaration.tensor_index(detail::find_input(Backward::declaration, name.view()));
    }
    return result;
  }();

  // The tensor argument of TheOp whose gradient each output of Backward is.
  static constexpr auto inputs = [] {
    std::array<size_t, Backward::declaration.outputs.size()> result{};
    for (size_t o = 0; o < result.size(); ++o) {
      const auto name = Backward::declaration.outputs[o].name;
      result[o] = TheOp::declaration.tensor_index(detail::find_input(TheOp::declaration, name));
    }
    return result;
  }();
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
