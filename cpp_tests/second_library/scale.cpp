// second::scale(Tensor input, float factor) -> Tensor: the whole of an op in one file.

#include <torch/library.h>

#include "core/autograd.h"
#include "core/check.h"
#include "core/define.h"
#include "core/vmap.h"
#include "elementwise.h"

namespace second {
namespace {

using Scale = core::Op<"second::scale", Tensor(const Tensor& input, double factor)>;

// input [B?, N, F] -> [B?, N, F]
core::Output shape(const Tensor& input, double) {
  core::Checker check("scale");
  check.floating("input", input);
  check.shape("input", input, "[B?, N, F]");
  return {check.sizes("[B?, N, F]"), input.options()};
}

Tensor scale_cpu(const Tensor& input, double factor) {
  Tensor out = core::allocate(shape(input, factor));
  map(out, [=](auto x) { return static_cast<decltype(x)>(x * factor); }, input);
  return out;
}

// Linear: the derivative is the op itself.
struct ForwardFormula {
  using Op = Scale;
  static constexpr std::array<core::Reads, 1> reads{};

  static std::array<Tensor, 1> vjp(const std::array<Tensor, 1>& grads, const core::Saved<ForwardFormula>& saved,
                                   const std::array<bool, 1>&) {
    return {Scale::call(grads[0], std::get<0>(saved.attributes))};
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 1>& tangents, const core::Saved<ForwardFormula>& saved) {
    return {Scale::call(tangents[0], std::get<0>(saved.attributes))};
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { core::define<Scale, shape>(m, "scale(Tensor input, float factor) -> Tensor"); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl(Scale::name, TORCH_FN(scale_cpu)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl(Scale::name, core::autograd<ForwardFormula>()); }
TORCH_LIBRARY_IMPL(second, FuncTorchBatched, m) {
  m.impl(Scale::name, core::vmap_rows<Scale, shape, /*input [F]*/ 1>());
}

}  // namespace
}  // namespace second
