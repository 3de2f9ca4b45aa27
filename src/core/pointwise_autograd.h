#pragma once

// Derivatives of elementwise operators (pointwise_math.h). The gradient of each input is grad * slope(saved), an
// elementwise operator too, whose derivative by grad is itself.

#include "core/autograd.h"
#include "core/dual.h"
#include "core/pointwise_family.h"

namespace cppcuda::core {

template <class TheOp, size_t N, class... Attributes>
Tensor call_with(const Tensor& grad, const std::array<Tensor, N>& saved, const std::tuple<Attributes...>& attributes) {
  return std::apply([&](const auto&... args) { return TheOp::call(grad, args...); }, std::tuple_cat(saved, attributes));
}

template <class Definition, class Inputs = std::make_integer_sequence<int, input_count<Definition>>>
struct PointwiseFormula;

template <class Definition, int... I>
struct PointwiseFormula<Definition, std::integer_sequence<int, I...>> {
  using Op = typename PointwiseOps<Definition>::Forward;
  static constexpr bool saves_input = Definition::saves == Saves::input;
  static constexpr unsigned all = (1U << sizeof...(I)) - 1;
  static constexpr std::array<Reads, sizeof...(I)> reads{
      (static_cast<void>(I), Reads{.inputs = saves_input ? all : 0, .outputs = saves_input ? 0U : 1U})...};

  static Inputs<PointwiseFormula> vjp(const std::array<Tensor, 1>& grads, const Saved<PointwiseFormula>& saved,
                                      const Need<PointwiseFormula>& need) {
    return {need[I] ? backward<I>(grads[0], saved) : Tensor()...};
  }

  static std::array<Tensor, 1> jvp(const Inputs<PointwiseFormula>& tangents, const Saved<PointwiseFormula>& saved) {
    Tensor out;
    ((tangents[I].defined() ? accumulate(out, backward<I>(tangents[I], saved)) : void()), ...);
    return {out};
  }

 private:
  template <int Input>
  static Tensor backward(const Tensor& grad, const Saved<PointwiseFormula>& saved) {
    using Backward = typename PointwiseOps<Definition>::template Backward<Input>;
    if constexpr (saves_input) {
      return call_with<Backward>(grad, saved.inputs, saved.attributes);
    } else {
      return call_with<Backward>(grad, saved.outputs, saved.attributes);
    }
  }
};

template <class Definition, int Input, class Indices = std::make_integer_sequence<int, saved_count<Definition>>>
struct PointwiseBackwardFormula;

template <class Definition, int Input, int... S>
struct PointwiseBackwardFormula<Definition, Input, std::integer_sequence<int, S...>> {
  using Op = typename PointwiseOps<Definition>::template Backward<Input>;
  using Tensors = std::array<Tensor, sizeof...(S)>;  // what forward saved, or directions of it
  enum : unsigned { grad = 1, saved = ((1U << sizeof...(S)) - 1) << 1 };
  static constexpr std::array<Reads, 1 + sizeof...(S)> reads{Reads{.inputs = saved},
                                                             (static_cast<void>(S), Reads{.inputs = grad | saved})...};

  static Inputs<PointwiseBackwardFormula> vjp(const std::array<Tensor, 1>& grads,
                                              const core::Saved<PointwiseBackwardFormula>& forward,
                                              const Need<PointwiseBackwardFormula>& need) {
    Inputs<PointwiseBackwardFormula> result;
    if (need[0]) result[0] = call_with<Op>(grads[0], saved_of(forward.inputs), forward.attributes);
    const auto by_saved = [&](int s) {
      Tensors directions;
      directions[s] = grads[0];
      return along(directions, forward);
    };
    ((need[1 + S] ? static_cast<void>(result[1 + S] = by_saved(S)) : void()), ...);
    return result;
  }

  static std::array<Tensor, 1> jvp(const Inputs<PointwiseBackwardFormula>& tangents,
                                   const core::Saved<PointwiseBackwardFormula>& forward) {
    Tensor out;
    if (tangents[0].defined()) {
      accumulate(out, call_with<Op>(tangents[0], saved_of(forward.inputs), forward.attributes));
    }
    const Tensor rest = along(saved_of(tangents), forward);
    if (rest.defined()) accumulate(out, rest);
    return {out};
  }

 private:
  static Tensors saved_of(const Inputs<PointwiseBackwardFormula>& inputs) { return {inputs[1 + S]...}; }

  // grad times the change of the slope in the directions, rounded once. Undefined where that is zero.
  static Tensor along(const Tensors& directions, const core::Saved<PointwiseBackwardFormula>& forward) {
    const Tensor& grad = forward.inputs[0];
    const auto times_grad = [&](const Tensor& direction) {
      return direction.defined() ? in_opmath(direction) * in_opmath(grad) : direction;
    };
    const auto attributes = [&](auto... values) { return Attributes<attribute_count<Definition>>{values...}; };
    const PointwiseBackward<Definition, Input> backward{{std::apply(attributes, forward.attributes)}};
    const Tensor result =
        backward.slope(Dual(in_opmath(forward.inputs[1 + S]), times_grad(directions[S]))...).tangent();
    return result.defined() ? result.to(grad.scalar_type()) : result;
  }
};

// In a TORCH_LIBRARY_IMPL of the Autograd key.
template <class TheFamily>
void differentiate_pointwise(torch::Library& m, TheFamily family) {
  for_each_operator(
      family,
      [&]<class Definition>() {
        m.impl(PointwiseOps<Definition>::Forward::name, autograd<PointwiseFormula<Definition>>());
      },
      [&]<class Definition, int Input>() {
        using Formula = PointwiseBackwardFormula<Definition, Input>;
        m.impl(Formula::Op::name, autograd<Formula>());
      });
}

}  // namespace cppcuda::core
