#pragma once

// Derivatives of formulas of rows (formula.h). The gradients are one call of the backward operator, if there is one;
// all others are computed by torch's operators (on_tensors.h).

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/call.h"
#include "cppcuda/kit/rows/on_tensors.h"
#include "cppcuda/kit/rows/operators.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

template <class Math, class Formula>
Math row_math_of(const Saved<Formula>& saved) {
  return std::apply([](const auto&... attributes) { return elementwise_math_of<Math>(attributes...); },
                    saved.attributes);
}

// Each gradient reads all inputs, or all outputs.
template <size_t Inputs, unsigned OfInputs, unsigned OfOutputs>
constexpr auto read_all() {
  std::array<Reads, Inputs> result{};
  for (Reads& reads : result) reads = {.inputs = OfInputs, .outputs = OfOutputs};
  return result;
}

template <class Definition>
struct RowFormula {
  using Op = typename RowOps<Definition>::Whole;
  using Backward = typename RowOps<Definition>::Backward;
  using Schema = RowSchema<Definition>;
  using Saved = kit::Saved<RowFormula>;
  static constexpr bool has_backward = Schema::has_backward, reads_output = has_backward && saves_output<Definition>();
  static constexpr unsigned all_inputs = (1U << Schema::tensors) - 1, all_outputs = (1U << Schema::results) - 1,
                            visible = (1U << Schema::visible) - 1;
  static constexpr auto reads = read_all<Schema::tensors, reads_output ? 0 : all_inputs,
                                         reads_output   ? all_outputs
                                         : has_backward ? (all_outputs & ~visible)
                                                        : 0>();

  static Inputs<Op> vjp(const Outputs<Op>& grads, const Saved& saved, const Need<Op>& need) {
    Inputs<Op> result;
    Outputs<Op> others = grads;  // those that the backward operator does not take
    if constexpr (has_backward) {
      bool has_grad = false;
      Call<Backward> call(saved);
      for (size_t g = 0; g < Schema::visible; ++g) {
        has_grad |= grads[g].defined();
        call.tensors[g] = grads[g];
        others[g] = Tensor();
      }
      if (has_grad) {
        if constexpr (Schema::gradients > 1) {
          auto& mask = call.template attribute<"output_mask">();
          mask.clear();
          for (const int i : Schema::differentiable) mask.push_back(need[i]);
        }
        const Outputs<Backward> found = call.run();
        for (size_t o = 0; o < found.size(); ++o) {
          if (need[Schema::differentiable[o]]) result[Schema::differentiable[o]] = found[o];
        }
      }
    }
    if (std::none_of(others.begin(), others.end(), [](const Tensor& t) { return t.defined(); })) return result;
    const auto rest = row_gradients(row_math_of<RowForward<Definition>>(saved), saved.inputs, others, need);
    for (size_t i = 0; i < result.size(); ++i) accumulate(result[i], rest[i]);
    return result;
  }

  static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved& saved) {
    return {row_tangents(row_math_of<RowForward<Definition>>(saved), saved.inputs, tangents, saved.outputs)};
  }
};

template <class Definition>
struct RowBackwardFormula {
  using Op = typename RowOps<Definition>::Backward;
  using Math = RowBackward<Definition>;
  using Saved = kit::Saved<RowBackwardFormula>;
  static constexpr auto reads = read_all<Math::inputs, (1U << Math::inputs) - 1, 0>();

  static Inputs<Op> vjp(const Outputs<Op>& grads, const Saved& saved, const Need<Op>& need) {
    return {row_gradients(row_math_of<Math>(saved), saved.inputs, grads, need)};
  }

  static Outputs<Op> jvp(const Inputs<Op>& tangents, const Saved& saved) {
    Outputs<Op> like;
    for (size_t o = 0; o < like.size(); ++o) {
      const auto requested = [o](const auto&... attributes) { return is_requested(o, attributes...); };
      if (std::apply(requested, saved.attributes)) {
        like[o] = saved.inputs[RowKernels<Op, Math>::own_tensor(o)];
      }
    }
    return {row_tangents(row_math_of<Math>(saved), saved.inputs, tangents, like)};
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
