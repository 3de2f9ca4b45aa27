// second::scale(Tensor input, float factor) -> Tensor: the whole of an op in one file.

#include <torch/library.h>

#include "core/autograd.h"
#include "core/define.h"
#include "elementwise.h"

namespace second {
namespace {

using Scale = core::Op<"second::scale(Tensor input[B?, N, F], float factor) -> Tensor[B?, N, F]">;

Tensor scale_cpu(const Tensor& input, double factor) {
  Tensor out = core::allocate(core::Shape<Scale>::outputs(input, factor));
  map(out, [=](auto x) { return static_cast<decltype(x)>(x * factor); }, input);
  return out;
}

// Linear: the derivative is the op itself.
struct ForwardFormula {
  using Op = Scale;
  static constexpr std::array<core::Reads, 1> reads{};

  static core::Inputs<Op> vjp(const core::Outputs<Op>& grads, const core::Saved<ForwardFormula>& saved,
                              const core::Need<Op>&) {
    return Scale::call(grads["output"], saved.attribute<"factor">());
  }

  static core::Outputs<Op> jvp(const core::Inputs<Op>& tangents, const core::Saved<ForwardFormula>& saved) {
    return Scale::call(tangents["input"], saved.attribute<"factor">());
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { core::define<Scale>(m); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl(Scale::name, TORCH_FN(scale_cpu)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl(Scale::name, core::autograd<ForwardFormula>()); }

}  // namespace
}  // namespace second
