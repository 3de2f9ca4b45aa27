// second::exp(Tensor input) -> Tensor: an op whose derivative reads its output.

#include <torch/library.h>

#include <cmath>

#include "core/autograd.h"
#include "core/check.h"
#include "core/define.h"
#include "core/vmap.h"
#include "elementwise.h"

namespace second {
namespace {

using Exp = core::Op<"second::exp", Tensor(const Tensor& input)>;

// input [B?, N, F] -> [B?, N, F]
core::Output shape(const Tensor& input) {
  core::Checker check("exp");
  check.floating("input", input);
  check.shape("input", input, "[B?, N, F]");
  return {check.sizes("[B?, N, F]"), input.options()};
}

Tensor exp_cpu(const Tensor& input) {
  Tensor out = core::allocate(shape(input));
  map(out, [](auto x) { return std::exp(x); }, input);
  return out;
}

struct ForwardFormula {
  using Op = Exp;
  enum : unsigned { output = 1 };
  static constexpr std::array<core::Reads, 1> reads{{{.outputs = output}}};

  static std::array<Tensor, 1> vjp(const std::array<Tensor, 1>& grads, const core::Saved<ForwardFormula>& saved,
                                   const std::array<bool, 1>&) {
    return {grads[0] * saved.outputs[0]};
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 1>& tangents, const core::Saved<ForwardFormula>& saved) {
    return {tangents[0] * saved.outputs[0]};
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { core::define<Exp, shape>(m, "exp(Tensor input) -> Tensor"); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl(Exp::name, TORCH_FN(exp_cpu)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl(Exp::name, core::autograd<ForwardFormula>()); }
TORCH_LIBRARY_IMPL(second, FuncTorchBatched, m) { m.impl(Exp::name, core::vmap_rows<Exp, shape, /*input [F]*/ 1>()); }

}  // namespace
}  // namespace second
