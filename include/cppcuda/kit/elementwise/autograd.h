#pragma once

// Derivatives of elementwise operators (math.h). The gradient of each input is grad * slope(saved), which is also an
// elementwise operator, and its own derivative with respect to grad.

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/elementwise/dual.h"
#include "cppcuda/kit/elementwise/family.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

template <class TheOp, size_t N, class... Attributes>
Tensor call_with(const Tensor& grad, const std::array<Tensor, N>& saved, const std::tuple<Attributes...>& attributes) {
  return std::apply([&](const auto&... args) { return TheOp::call(grad, args...); }, std::tuple_cat(saved, attributes));
}

template <class Definition, class Inputs = std::make_integer_sequence<int, input_count<Definition>>>
struct ElementwiseFormula;

template <class Definition, int... I>
struct ElementwiseFormula<Definition, std::integer_sequence<int, I...>> {
  using Op = typename ElementwiseOps<Definition>::Forward;
  static constexpr bool saves_input = Definition::saves == Saves::input;
  static constexpr unsigned all = (1U << sizeof...(I)) - 1;
  static constexpr std::array<Reads, sizeof...(I)> reads{
      (static_cast<void>(I), Reads{.inputs = saves_input ? all : 0, .outputs = saves_input ? 0U : 1U})...};

  static Inputs<Op> vjp(const std::array<Tensor, 1>& grads, const Saved<ElementwiseFormula>& saved,
                        const Need<Op>& need) {
    return {need[I] ? backward<I>(grads[0], saved) : Tensor()...};
  }

  static std::array<Tensor, 1> jvp(const Inputs<Op>& tangents, const Saved<ElementwiseFormula>& saved) {
    Tensor out;
    ((tangents[I].defined() ? accumulate(out, backward<I>(tangents[I], saved)) : void()), ...);
    return {out};
  }

 private:
  template <int Input>
  static Tensor backward(const Tensor& grad, const Saved<ElementwiseFormula>& saved) {
    using Backward = typename ElementwiseOps<Definition>::template Backward<Input>;
    if constexpr (saves_input) {
      return call_with<Backward>(grad, saved.inputs, saved.attributes);
    } else {
      return call_with<Backward>(grad, saved.outputs, saved.attributes);
    }
  }
};

template <class Definition>
inline constexpr bool has_slope_of_slope = requires { &Definition::template slope_of_slope<Dual>; };

template <class Definition, int Input, class Indices = std::make_integer_sequence<int, saved_count<Definition>>>
struct ElementwiseBackwardFormula;

template <class Definition, int Input, int... S>
struct ElementwiseBackwardFormula<Definition, Input, std::integer_sequence<int, S...>> {
  using Op = typename ElementwiseOps<Definition>::template Backward<Input>;
  enum : unsigned { grad = 1, saved = ((1U << sizeof...(S)) - 1) << 1 };
  static constexpr std::array<Reads, 1 + sizeof...(S)> reads{Reads{.inputs = saved},
                                                             (static_cast<void>(S), Reads{.inputs = grad | saved})...};

  static Inputs<Op> vjp(const std::array<Tensor, 1>& grads, const kit::Saved<ElementwiseBackwardFormula>& forward,
                        const Need<Op>& need) {
    Inputs<Op> result;
    if (need[0]) result[0] = call_with<Op>(grads[0], saved_of(forward.inputs), forward.attributes);
    ((need[1 + S] ? static_cast<void>(result[1 + S] = along_saved<S>(grads[0], forward)) : void()), ...);
    return result;
  }

  static std::array<Tensor, 1> jvp(const Inputs<Op>& tangents, const kit::Saved<ElementwiseBackwardFormula>& forward) {
    Tensor out;
    if (tangents[0].defined()) {
      accumulate(out, call_with<Op>(tangents[0], saved_of(forward.inputs), forward.attributes));
    }
    const auto add = [&](const Tensor& t) { t.defined() ? accumulate(out, t) : void(); };
    ((tangents[1 + S].defined() ? add(along_saved<S>(tangents[1 + S], forward)) : void()), ...);
    return {out};
  }

 private:
  static std::array<Tensor, sizeof...(S)> saved_of(const Inputs<Op>& inputs) { return {inputs[1 + S]...}; }

  // direction * grad * (derivative of the slope with respect to saved tensor number Index), rounded once; undefined if
  // it is zero. The factors are multiplied last, because terms of the derivative may cancel exactly.
  template <int Index>
  static Tensor along_saved(const Tensor& direction, const kit::Saved<ElementwiseBackwardFormula>& forward) {
    const Tensor& grad = forward.inputs[0];
    const Dual::Tangent derivative = slope_derivative<Index>(forward);
    if (!derivative) return {};
    const Tensor factor = in_opmath(direction) * in_opmath(grad);
    return std::visit([&](const auto& t) { return factor * t; }, *derivative).to(grad.scalar_type());
  }

  template <int Index>
  static Dual::Tangent slope_derivative(const kit::Saved<ElementwiseBackwardFormula>& forward) {
    const auto dual = [&](int s, Dual::Tangent tangent) {
      return Dual(in_opmath(forward.inputs[1 + s]), std::move(tangent));
    };
    if constexpr (has_slope_of_slope<Definition>) {
      static_assert(sizeof...(S) == 1, "slope_of_slope is for operators of one tensor");
      const auto call = [&](auto... attributes) {
        return Definition::slope_of_slope(dual(0, {}), Dual(attributes)...);
      };
      return std::apply(call, forward.attributes).value();
    } else {
      const auto attributes = [&](auto... values) { return Attributes<attribute_count<Definition>>{values...}; };
      const ElementwiseBackward<Definition, Input> backward{{std::apply(attributes, forward.attributes)}};
      return backward.slope(dual(S, S == Index ? Dual::Tangent(1.0) : std::nullopt)...).tangent();
    }
  }
};

}  // namespace detail

// Call this in a TORCH_LIBRARY_IMPL of the Autograd key.
template <class TheFamily>
void differentiate_elementwise(torch::Library& m, TheFamily family) {
  detail::for_each_operator(
      family,
      [&]<class Definition>() {
        m.impl(ElementwiseOps<Definition>::Forward::name, autograd<detail::ElementwiseFormula<Definition>>());
      },
      [&]<class Definition, int Input>() {
        using Formula = detail::ElementwiseBackwardFormula<Definition, Input>;
        m.impl(Formula::Op::name, autograd<Formula>());
      });
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
