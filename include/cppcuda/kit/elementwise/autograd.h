#pragma once

// Derivatives of elementwise operators (math.h). The gradients of the inputs are one call of the backward operator, and
// those of that one call of the double backward operator; what follows is computed by torch's operators.

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/call.h"
#include "cppcuda/kit/elementwise/family.h"
#include "cppcuda/kit/elementwise/on_tensors.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// The tensor arguments of the double backward operator: grad, as many saved tensors as inputs, and a direction for each
// input, the gradient of its gradient.
template <class Definition>
struct FirstTensor {
  static constexpr size_t saved = 1, direction = 1 + input_count<Definition>;
};

// A call of the double backward operator, whose first output is the sum of the products of the slopes with the
// directions, and whose others are those that follow from `grad`, which is then not missing.
template <class Definition, class Formula>
auto double_backward(const Saved<Formula>& saved, const Tensor& grad, bool sum, const auto& directions) {
  using DoubleBackward = typename ElementwiseOps<Definition>::DoubleBackward;
  constexpr size_t tensors = input_count<Definition>;
  Call<DoubleBackward> call(saved);
  call.tensors[0] = grad;
  for (size_t i = 0; i < tensors; ++i) call.tensors[FirstTensor<Definition>::direction + i] = directions[i];
  auto& mask = call.template attribute<"output_mask">();
  mask.assign(1 + tensors, grad.defined());
  mask[0] = sum;
  return call.run();
}

template <class Definition>
struct ElementwiseFormula
    : GradientsBy<typename ElementwiseOps<Definition>::Forward, typename ElementwiseOps<Definition>::Backward> {
  using Op = typename ElementwiseOps<Definition>::Forward;

  static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved<ElementwiseFormula>& saved) {
    return {double_backward<Definition>(saved, Tensor(), /*sum=*/true, tangents)[0]};
  }
};

template <class Definition>
struct ElementwiseBackwardFormula
    : GradientsBy<typename ElementwiseOps<Definition>::Backward, typename ElementwiseOps<Definition>::DoubleBackward> {
  using Op = typename ElementwiseOps<Definition>::Backward;

  static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved<ElementwiseBackwardFormula>& saved) {
    constexpr size_t tensors = input_count<Definition>;
    Outputs<Op> result;
    if (tangents[0].defined()) {
      Call<Op> call(saved);
      call.tensors[0] = tangents[0];
      result = call.run();
    }
    std::array<Tensor, tensors> directions;
    std::copy_n(tangents.begin() + 1, tensors, directions.begin());
    if (std::any_of(directions.begin(), directions.end(), [](const Tensor& t) { return t.defined(); })) {
      const auto along = double_backward<Definition>(saved, saved.inputs[0], /*sum=*/false, directions);
      for (size_t i = 0; i < tensors; ++i) {
        const auto requested = [i](const auto&... attributes) { return is_requested(i, attributes...); };
        if (std::apply(requested, saved.attributes)) accumulate(result[i], along[1 + i]);
      }
    }
    return result;
  }
};

// With slopes s, directions v, `grad` g and D_v s the derivative of s along v, the operator returns sum v[i] s[i] and
// g D_v s[i]. Formulas compute in the type of sums, and round once.
template <class Definition>
struct ElementwiseDoubleBackwardFormula {
  using Op = typename ElementwiseOps<Definition>::DoubleBackward;
  using Saved = kit::Saved<ElementwiseDoubleBackwardFormula>;
  using First = FirstTensor<Definition>;
  static constexpr size_t tensors = input_count<Definition>;
  static constexpr auto reads = [] {
    constexpr unsigned grad = 1, each = (1U << tensors) - 1, saved = each << First::saved,
                       along = each << First::direction;
    std::array<Reads, 1 + 2 * tensors> result{{{.inputs = saved | along}}};
    for (size_t i = 0; i < tensors; ++i) {
      result[First::saved + i].inputs = grad | saved | along;
      result[First::direction + i].inputs = grad | saved;
    }
    return result;
  }();

  // With gradients h0 and h[i] of the outputs: sum h[i] D_v s[i] for g, h0 D_v s[i] + g D_h D_v s[i] for a saved
  // tensor, and h0 s[i] + g D_h s[i] for a direction.
  static Inputs<Op> vjp(const Outputs<Op>& grads, const Saved& saved, const Need<Op>& need) {
    return vjp(grads, saved, need, std::make_index_sequence<tensors>());
  }

  static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved& saved) {
    return jvp(tangents, saved, std::make_index_sequence<Op::declaration.tensor_count()>());
  }

 private:
  template <size_t... I>
  static Rounding<tensors> rounding(const Saved& saved, std::index_sequence<I...>) {
    return {{saved.inputs[First::saved + I]...}};
  }

  static auto math_of(const Saved& saved) {
    return std::apply(
        [](auto... numbers_and_mask) {
          return elementwise_math_of<ElementwiseDoubleBackward<Definition>>(numbers_and_mask...);
        },
        saved.attributes);
  }

  template <size_t... I>
  static Inputs<Op> vjp(const Outputs<Op>& grads, const Saved& saved, const Need<Op>& need, std::index_sequence<I...>) {
    const TensorValue g = value_of(saved.inputs[0]), h0 = value_of(grads[0]);
    const std::array<TensorValue, tensors> h{value_of(grads[1 + I])...};
    const auto along = [&](size_t i) {
      return Dual<TensorValue>(value_of(saved.inputs[First::saved + i]), value_of(saved.inputs[First::direction + i]));
    };
    const auto s = math_of(saved).slopes(Dual<Dual<TensorValue>>(along(I), Dual<TensorValue>::constant(h[I]))...);
    const auto round = rounding(saved, std::index_sequence<I...>());
    Inputs<Op> result;
    if (need[0]) result[0] = round(((h[I] * s.value[I].value.tangent) + ...));
    const auto set = [&](size_t i, const Dual<Dual<TensorValue>>& slope) {
      const auto& [value, along_v, varies] = slope.value;
      if (need[First::saved + i]) {
        result[First::saved + i] = round.gradient(h0 * along_v + g * slope.tangent.tangent, i);
      }
      if (need[First::direction + i]) {
        result[First::direction + i] = round.gradient(h0 * value + g * slope.tangent.value, i);
      }
    };
    (set(I, s.value[I]), ...);
    return result;
  }

  template <size_t... I>
  static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved& saved, std::index_sequence<I...>) {
    const auto found = math_of(saved)(Dual<TensorValue>(value_of(saved.inputs[I]), value_of(tangents[I]))...);
    const auto round = rounding(saved, std::make_index_sequence<tensors>());
    Outputs<Op> result;
    result[0] = round(found.value[0].tangent);
    for (size_t i = 0; i < tensors; ++i) result[1 + i] = round.gradient(found.value[1 + i].tangent, i);
    return result;
  }
};

}  // namespace detail

// Call this in a TORCH_LIBRARY_IMPL of the Autograd key.
template <class... Definitions>
void differentiate_elementwise(torch::Library& m, Family<Definitions...>) {
  const auto add = [&]<class Formula>(std::type_identity<Formula>) { m.impl(Formula::Op::name, autograd<Formula>()); };
  ((add(std::type_identity<detail::ElementwiseFormula<Definitions>>()),
    add(std::type_identity<detail::ElementwiseBackwardFormula<Definitions>>()),
    add(std::type_identity<detail::ElementwiseDoubleBackwardFormula<Definitions>>())),
   ...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
