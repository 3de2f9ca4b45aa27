// second::scale(Tensor input, float factor) -> Tensor: a complete op in one file.

#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "map.h"

namespace second {
namespace {

using Scale = kit::Op<"second::scale(Tensor input[B?, N, F], float factor) -> Tensor[B?, N, F]">;

void scale_cpu(const kit::Args<Scale>& args, const kit::Outputs<Scale>& out) {
  const double factor = args.get<"factor">();
  map(out["output"], [=](auto x) { return static_cast<decltype(x)>(x * factor); }, args["input"]);
}

// Linear: the derivative is the op itself.
struct ForwardFormula {
  using Op = Scale;
  static constexpr auto reads = kit::reads_nothing<Op>();

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    return Scale::call(grads["output"], saved.attribute<"factor">());
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    return Scale::call(tangents["input"], saved.attribute<"factor">());
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Scale>(m).implement_cpu<scale_cpu>().differentiate<ForwardFormula>(); }

}  // namespace
}  // namespace second
