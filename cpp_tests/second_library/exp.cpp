// second::exp(Tensor input) -> Tensor: an op whose derivative reads its output.

#include <torch/library.h>

#include <cmath>

#include "core/autograd.h"
#include "core/define.h"
#include "elementwise.h"

namespace second {
namespace {

using Exp = core::Op<"second::exp(Tensor input[B?, N, F]) -> Tensor[B?, N, F]">;

Tensor exp_cpu(const Tensor& input) {
  Tensor out = core::allocate(core::Shape<Exp>::outputs(input));
  map(out, [](auto x) { return std::exp(x); }, input);
  return out;
}

struct ForwardFormula {
  using Op = Exp;
  static constexpr auto reads = core::reads<Op>({{"input", {"output"}}});

  static core::Inputs<Op> vjp(const core::Outputs<Op>& grads, const core::Saved<ForwardFormula>& saved,
                              const core::Need<Op>&) {
    return grads["output"] * saved["output"];
  }

  static core::Outputs<Op> jvp(const core::Inputs<Op>& tangents, const core::Saved<ForwardFormula>& saved) {
    return tangents["input"] * saved["output"];
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { core::define<Exp>(m); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl(Exp::name, TORCH_FN(exp_cpu)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl(Exp::name, core::autograd<ForwardFormula>()); }

}  // namespace
}  // namespace second
