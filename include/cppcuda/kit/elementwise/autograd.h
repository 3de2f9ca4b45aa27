#pragma once

// Derivatives of elementwise operators (math.h). The gradients of the inputs are one call of the backward operator, and
// those of that one call of the double backward operator; what follows is computed by torch's operators.

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/call.h"
#include "cppcuda/kit/elementwise/family.h"
#include "cppcuda/kit/elementwise/on_tensors.h"
#include "cppcuda/kit/elementwise/recorded.h"
#include "cppcuda/kit/rows/autograd.h"

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

// The arguments that the gradients of the double backward operator read.
template <class Definition>
constexpr auto double_backward_reads() {
  using First = FirstTensor<Definition>;
  constexpr size_t tensors = input_count<Definition>;
  constexpr unsigned grad = 1, each = (1U << tensors) - 1, saved = each << First::saved,
                     along = each << First::direction;
  std::array<Reads, 1 + 2 * tensors> result{{{.inputs = saved | along}}};
  for (size_t i = 0; i < tensors; ++i) {
    result[First::saved + i].inputs = grad | saved | along;
    result[First::direction + i].inputs = grad | saved;
  }
  return result;
}

// With slopes s, directions v, `grad` g and D_v s the derivative of s along v, the operator returns sum v[i] s[i] and
// g D_v s[i]. Formulas compute in the type of sums, and round once.
template <class Definition>
struct ElementwiseDoubleBackwardFormula {
  using Op = typename ElementwiseOps<Definition>::DoubleBackward;
  using Saved = kit::Saved<ElementwiseDoubleBackwardFormula>;
  using First = FirstTensor<Definition>;
  static constexpr size_t tensors = input_count<Definition>;
  static constexpr auto reads = double_backward_reads<Definition>();

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

// For formulas of points f(x). The operator returns the gradients of P = g D_v f(x) for g and x. Both vjp, with the
// gradients of these, and jvp, with the tangents of g, x and v, are the gradients of the derivative of P along them.
template <class Definition>
struct PointDoubleBackwardFormula {
  using Op = typename ElementwiseOps<Definition>::DoubleBackward;
  using Saved = kit::Saved<PointDoubleBackwardFormula>;
  using First = FirstTensor<Definition>;
  using Math = PointDoubleBackward<Definition>;
  static constexpr size_t tensors = input_count<Definition>;
  static constexpr auto reads = double_backward_reads<Definition>();

  static Inputs<Op> vjp(const Outputs<Op>& grads, const Saved& saved, const Need<Op>& need) {
    Inputs<Op> along, result;
    std::copy(grads.begin(), grads.end(), along.begin());
    differentiate(saved, along, [&](size_t i, auto gradient) {
      if (need[i]) result[i] = gradient();
    });
    return result;
  }

  static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved& saved) {
    Outputs<Op> result;
    differentiate(saved, tangents, [&](size_t i, auto gradient) {
      if (i < result.size()) result[i] = gradient();
    });
    return result;
  }

 private:
  // Calls use(i, f), where f() returns the gradient of the derivative of P along these directions for tensor number i.
  template <class Use>
  static void differentiate(const Saved& saved, const Inputs<Op>& along, Use use) {
    std::vector<TensorValue> values, directions;
    for (size_t i = 0; i < saved.inputs.size(); ++i) {
      append_values(values, saved.inputs[i], Math::own[Math::outputs + i]);
      append_values(directions, along[i], Math::own[Math::outputs + i]);
    }
    Record record;
    std::vector<Dual<Recorded>> all;
    for (size_t v = 0; v < values.size(); ++v) all.emplace_back(record.variable(values[v]), Recorded(directions[v]));
    const Dual<Recorded>*const g = all.data(), *const x = g + Math::result_count, *const v = x + Math::all_count;
    std::vector<Dual<Dual<Recorded>>> x_along_v;
    for (int i = 0; i < Math::all_count; ++i) x_along_v.emplace_back(x[i], v[i]);
    const auto math = std::apply(
        [](auto... numbers_and_mask) { return elementwise_math_of<Math>(numbers_and_mask...); }, saved.attributes);
    const auto y = math.value(x_along_v.data());
    Dual<Recorded> p = g[0] * y[0].tangent;
    for (int o = 1; o < Math::result_count; ++o) p = p + g[o] * y[o].tangent;
    const auto found = record.derivatives(p.tangent, values.size());
    const Tensor point = one_value_of_each_point(saved);
    const TensorValue* from = found.data();
    for (size_t i = 0; i < saved.inputs.size(); ++i) {
      const OwnSizes& own = Math::own[Math::outputs + i];
      use(i, [&] {
        c10::SymDimVector sizes(point.sym_sizes());
        sizes.append(own.sizes, own.sizes + own.rank);
        const Tensor& like = saved.inputs[i >= First::direction ? i - tensors : i];
        const bool has_own_sizes = i >= First::saved && like.defined();
        return from_values(from, own, point, has_own_sizes ? c10::SymIntArrayRef(like.sym_sizes()) : sizes,
                           saved.inputs[First::saved].scalar_type());
      });
      from += own.count();
    }
  }

  // A tensor with the sizes to which all tensors broadcast, without those of values.
  static Tensor one_value_of_each_point(const Saved& saved) {
    std::vector<Tensor> first;
    for (size_t i = 0; i < tensors; ++i) {
      Tensor t = in_opmath(saved.inputs[First::saved + i]);
      for (int d = 0; d < Math::own[Math::outputs + First::saved + i].rank; ++d) t = t.select(-1, 0);
      first.push_back(t);
    }
    c10::SymDimVector sizes(first[0].sym_sizes());
    for (const Tensor& t : first) sizes = at::infer_size_symdimvector(sizes, t.sym_sizes());
    return first[0].expand_symint(sizes);
  }
};

template <class Definition>
using DoubleBackwardFormula = std::conditional_t<is_of_points<Definition>, PointDoubleBackwardFormula<Definition>,
                                                 ElementwiseDoubleBackwardFormula<Definition>>;

}  // namespace detail

// Call this in a TORCH_LIBRARY_IMPL of the Autograd key.
template <class... Definitions>
void differentiate_elementwise(torch::Library& m, Family<Definitions...>) {
  const auto add = [&]<class Formula>(std::type_identity<Formula>) { m.impl(Formula::Op::name, autograd<Formula>()); };
  const auto add_each = [&]<class Definition>(std::type_identity<Definition>) {
    if constexpr (detail::is_of_rows<Definition>) {
      using Kernels = detail::RowKernelsOf<Definition>;
      add(std::type_identity<detail::RowFormula<Definition>>());
      if constexpr (Kernels::has_backward) add(std::type_identity<detail::RowBackwardFormula<Definition>>());
      if constexpr (Kernels::hides) {
        using Forward = typename Kernels::Forward;
        m.impl(Forward::TheOp::name,
               detail::autograd_through<typename Forward::TheOp, typename Kernels::Whole::TheOp, &Forward::shape>());
      }
    } else {
      add(std::type_identity<detail::ElementwiseFormula<Definition>>());
      add(std::type_identity<detail::ElementwiseBackwardFormula<Definition>>());
      add(std::type_identity<detail::DoubleBackwardFormula<Definition>>());
    }
  };
  (add_each(std::type_identity<Definitions>()), ...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
