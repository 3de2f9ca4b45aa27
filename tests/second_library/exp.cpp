// second::exp(Tensor input) -> Tensor: an op whose derivative reads its output.

#include <torch/library.h>

#include <cmath>

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/define.h"
#include "map.h"

namespace second {
namespace {

using Exp = kit::Op<"second::exp(Tensor input[B?, N, F]) -> Tensor[B?, N, F]">;

Tensor exp_cpu(const Tensor& input) {
  Tensor out = kit::allocate(kit::Shape<Exp>::outputs(input));
  map(out, [](auto x) { return std::exp(x); }, input);
  return out;
}

struct ForwardFormula {
  using Op = Exp;
  static constexpr auto reads = kit::reads<Op>({{"input", {"output"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    return grads["output"] * saved["output"];
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    return tangents["input"] * saved["output"];
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Exp>(m); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl(Exp::name, TORCH_FN(exp_cpu)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl(Exp::name, kit::autograd<ForwardFormula>()); }

}  // namespace
}  // namespace second
