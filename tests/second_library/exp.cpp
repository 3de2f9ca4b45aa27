// second::exp(Tensor input) -> Tensor: an op whose derivative reads its output.

#include <torch/library.h>

#include <cmath>

#include "cppcuda/kit/define.h"
#include "map.h"

namespace second {
namespace {

using Exp = kit::Op<"second::exp(Tensor input[B?, N, F]) -> Tensor[B?, N, F]", kit::Variants>;

void exp_cpu(const kit::Args<Exp>& args, const kit::Outputs<Exp>& out) {
  map(out["output"], [](auto x) { return std::exp(x); }, args["input"]);
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

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Exp>(m).implement_cpu<exp_cpu>().differentiate<ForwardFormula>(); }

}  // namespace
}  // namespace second
