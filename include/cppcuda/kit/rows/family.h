#pragma once

// The operators that are registered for a formula of rows (formula.h). For my_ops::rms_norm:
//
//   rms_norm(Tensor input, Tensor weight, float eps) -> Tensor
//   _rms_norm(...) -> (Tensor output, Tensor rstd)         if it hides outputs: what runs if a gradient is needed
//   _rms_norm_backward(Tensor grad, Tensor rstd, Tensor input, Tensor weight, float eps, bool[2] output_mask)
//       -> (Tensor, Tensor)                                if the formula has backward
//   rms_norm_, rms_norm.out                                if it returns one tensor (variants.h)

#include <string_view>

#include "cppcuda/kit/op.h"
#include "cppcuda/kit/rows/formula.h"
#include "cppcuda/kit/variants.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// The declarations of the operators, put together at compile time.
template <class Definition>
struct RowText {
  static constexpr auto forward = [] {
    FixedText<sizeof(Definition::schema)> text;
    text.append(Definition::schema);
    return text;
  }();
  using Forward = Op<fixed_string<forward>()>;
  using Whole = WithHidden<Forward>;

  static constexpr auto with(std::string_view suffix) {
    FixedText<Forward::declaration.name.size() + 4> text;
    text.append(Forward::declaration.name);
    text.append(suffix);
    return text;
  }
  static constexpr auto in_place = with("_"), out = with(".out");

  template <const auto& Name>
  static constexpr auto text_of = [] {
    FixedText<Name.size()> text;
    text.append(Name);
    return text;
  }();
  template <int I>
  static constexpr std::string_view input_name = Forward::declaration.arguments[I].name;
  template <int O>
  static constexpr std::string_view output_name = Whole::declaration.output_name(O);
  template <int I>
  static constexpr auto input = fixed_string<text_of<input_name<I>>>();
  template <int O>
  static constexpr auto output = fixed_string<text_of<output_name<O>>>();
};

template <class Definition, class Inputs, class Outputs, class Gradients>
struct RowBackwardOf;
template <class Definition, int... I, int... O, int... G>
struct RowBackwardOf<Definition, std::integer_sequence<int, I...>, std::integer_sequence<int, O...>,
                     std::integer_sequence<int, G...>> {
  using Text = RowText<Definition>;
  using Math = RowBackward<Definition>;
  template <int Of>
  using Reads = GradientReads<Text::template input<Of>, Text::template input<I>...,
                              Text::template output<Math::first_saved + O>...>;
  using type = BackwardOf<typename Text::Forward, Reads<RowSchema<Definition>::differentiable[G]>...>;
};

template <class Definition>
struct RowBackwardOp {
  using type = void;
};
template <class Definition>
  requires(RowSchema<Definition>::has_backward)
struct RowBackwardOp<Definition> {
  using Math = RowBackward<Definition>;
  using type = typename RowBackwardOf<Definition, std::make_integer_sequence<int, Math::tensors>,
                                      std::make_integer_sequence<int, Math::saved>,
                                      std::make_integer_sequence<int, Math::outputs>>::type;
};

}  // namespace detail

template <class Definition, class Type = typename detail::RowText<Definition>::Forward::Type>
struct RowOps;

template <class Definition, class R, class... Args>
struct RowOps<Definition, R(Args...)> {
  using Text = detail::RowText<Definition>;
  using Forward = typename Text::Forward;
  using Whole = typename Text::Whole;  // with the hidden outputs
  using InPlace = Op<detail::fixed_string<Text::in_place>(), detail::WrittenSelf(Args...)>;
  using Out = Op<detail::fixed_string<Text::out>(), void(Args..., const Tensor& out)>;
  using Backward = typename detail::RowBackwardOp<Definition>::type;  // void if there is none
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
