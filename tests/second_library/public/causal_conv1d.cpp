// second::causal_conv1d: a convolution of each channel along time that sees no later entry, as in Mamba and its
// package causal_conv1d (https://github.com/Dao-AILab/causal-conv1d). If a state is given, it has the entries before
// `x`, zeros otherwise, and takes the last ones of both.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "public/causal_conv1d.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using CausalConv = kit::Op<
    "second::causal_conv1d(Tensor x[B?, N, C, L], Tensor weight[B?, C, W], Tensor? bias[B?, C]=None, "
    "Tensor(a!)? state[B?, N, C, W - 1]=None, bool silu=False) -> Tensor[B?, N, C, L]">;

Tensor causal_conv(const kit::Args<CausalConv>& args) {
  const Tensor &x = args["x"], &state = args["state"];
  const int64_t width = args["weight"].size(-1);
  TORCH_CHECK(width >= 1, "causal_conv1d: weight must have at least one entry along time");
  const Tensor result = at::empty_like(x, at::MemoryFormat::Contiguous);
  auto sizes = x.sizes().vec();
  sizes.back() = width - 1;
  const Tensor all = at::cat({state.defined() ? state : at::zeros(sizes, x.options()), x}, -1);
  kit::visit_dtype(x.scalar_type(), [&]<class T>(std::type_identity<T>) {
    kit::run(x.device(), CausalConvLoop<T>{kit::view_of<const T, 4>(all), kit::view_of<const T, 3>(args["weight"]),
                                           kit::view_of<const T, 2>(args["bias"]), kit::view_of<T, 4>(result),
                                           args.get<"silu">(), result.numel(), width});
  });
  if (state.defined()) state.copy_(all.narrow(-1, x.size(-1), width - 1));
  return result;
}

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<CausalConv>(m).implement<causal_conv>(); }

}  // namespace
}  // namespace second
