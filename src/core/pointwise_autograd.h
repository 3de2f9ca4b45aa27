#pragma once

// Derivatives of an elementwise op f of one input, whose backward op is grad * slope(saved), where forward has saved
// its input or its output. What is left to say of an op is the derivative of that slope.

#include "core/autograd.h"

namespace cppcuda::core {

enum class Saves { input, output };

template <class TheForward, class Backward, Saves What>
struct PointwiseFormula {
  using Op = TheForward;
  static constexpr bool saves_input = What == Saves::input;
  static constexpr std::array<Reads, 1> reads{{{.inputs = saves_input, .outputs = !saves_input}}};

  static std::array<Tensor, 1> vjp(const std::array<Tensor, 1>& grads, const Saved<PointwiseFormula>& saved,
                                   const std::array<bool, 1>&) {
    return {Backward::call(grads[0], saves_input ? saved.inputs[0] : saved.outputs[0])};
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 1>& tangents, const Saved<PointwiseFormula>& saved) {
    return vjp(tangents, saved, {true});
  }
};

template <class Backward, auto SlopeOfSlope>
struct PointwiseBackwardFormula {
  using Op = Backward;
  enum : unsigned { grad = 1, saved = 2 };
  static constexpr std::array<Reads, 2> reads{{
      /*grad*/ {.inputs = saved},
      /*saved*/ {.inputs = grad | saved},
  }};

  static std::array<Tensor, 2> vjp(const std::array<Tensor, 1>& grads, const Saved<PointwiseBackwardFormula>& forward,
                                   const std::array<bool, 2>& need) {
    const auto& [g, s] = forward.inputs;
    return {need[0] ? Backward::call(grads[0], s) : Tensor(), need[1] ? by_saved(grads[0], g, s) : Tensor()};
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 2>& tangents,
                                   const Saved<PointwiseBackwardFormula>& forward) {
    const auto& [g, s] = forward.inputs;
    const auto& [tg, ts] = tangents;
    Tensor out;
    if (tg.defined()) accumulate(out, Backward::call(tg, s));
    if (ts.defined()) accumulate(out, by_saved(ts, g, s));
    return {out};
  }

 private:
  static Tensor by_saved(const Tensor& direction, const Tensor& g, const Tensor& s) {
    return (in_opmath(direction) * in_opmath(g) * SlopeOfSlope(in_opmath(s))).to(s.scalar_type());
  }
};

// In a TORCH_LIBRARY_IMPL of the Autograd key. SlopeOfSlope(saved) is a function of ATen ops.
template <class Forward, class Backward, Saves What, auto SlopeOfSlope>
void pointwise_autograd(torch::Library& library) {
  library.impl(Forward::name, autograd<PointwiseFormula<Forward, Backward, What>>());
  library.impl(Backward::name, autograd<PointwiseBackwardFormula<Backward, SlopeOfSlope>>());
}

}  // namespace cppcuda::core
