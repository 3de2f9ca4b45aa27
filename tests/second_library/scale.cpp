// second::scale(Tensor input, float factor) -> Tensor: a complete op in one file.

#include <torch/library.h>

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/define.h"
#include "map.h"

namespace second {
namespace {

using Scale = kit::Op<"second::scale(Tensor input[B?, N, F], float factor) -> Tensor[B?, N, F]">;

Tensor scale_cpu(const Tensor& input, double factor) {
  Tensor out = kit::allocate(kit::Shape<Scale>::outputs(input, factor));
  map(out, [=](auto x) { return static_cast<decltype(x)>(x * factor); }, input);
  return out;
}

// Linear: the derivative is the op itself.
struct ForwardFormula {
  using Op = Scale;
  static constexpr std::array<kit::Reads, 1> reads{};

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    return Scale::call(grads["output"], saved.attribute<"factor">());
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    return Scale::call(tangents["input"], saved.attribute<"factor">());
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Scale>(m); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl(Scale::name, TORCH_FN(scale_cpu)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl(Scale::name, kit::autograd<ForwardFormula>()); }

}  // namespace
}  // namespace second
