// second::causal_conv1d: a convolution of each channel along time that sees no later entry, as in Mamba and its
// package causal_conv1d (https://github.com/Dao-AILab/causal-conv1d). If a state is given, it has the entries before
// `x`, zeros otherwise, and takes the last ones of both.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cmath>

#include "batched.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using CausalConv = kit::Op<
    "second::causal_conv1d(Tensor x[B?, N, C, L], Tensor weight[B?, C, W], Tensor? bias[B?, C]=None, "
    "Tensor(a!)? state[B?, N, C, W - 1]=None, bool silu=False) -> Tensor[B?, N, C, L]">;

Tensor causal_conv_cpu(const kit::Args<CausalConv>& args) {
  const Tensor &x = args["x"], &state = args["state"];
  const int64_t width = args["weight"].size(-1);
  TORCH_CHECK(width >= 1, "causal_conv1d: weight must have at least one entry along time");
  const Tensor result = at::empty_like(x, at::MemoryFormat::Contiguous);
  auto sizes = x.sizes().vec();
  sizes.back() = width - 1;
  // All entries, so that output l is the sum over k of weight[k] * all[l + k].
  const Tensor all = batched(at::cat({state.defined() ? state : at::zeros(sizes, x.options()), x}, -1), 4);
  const Tensor weight = batched(args["weight"], 3), output = batched(result, 4);
  const Tensor bias = args["bias"].defined() ? batched(args["bias"], 2) : Tensor();
  const int64_t images = output.size(1), channels = output.size(2), length = output.size(3);
  kit::visit_dtype(x.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const auto from = all.accessor<const T, 4>();
    const auto weights = weight.accessor<const T, 3>();
    auto to = output.accessor<T, 4>();
    const int64_t grain = 1 + (1 << 14) / (1 + length * width);
    at::parallel_for(0, output.size(0) * images * channels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t c = row % channels, n = row / channels % images, b = row / channels / images;
        const A shift = bias.defined() ? static_cast<A>(bias.accessor<const T, 2>()[b][c]) : A(0);
        for (int64_t l = 0; l < length; ++l) {
          A sum = shift;
          for (int64_t k = 0; k < width; ++k) {
            sum += static_cast<A>(weights[b][c][k]) * static_cast<A>(from[b][n][c][l + k]);
          }
          to[b][n][c][l] = static_cast<T>(args.get<"silu">() ? sum / (1 + std::exp(-sum)) : sum);
        }
      }
    });
  });
  if (state.defined()) state.copy_(all.narrow(-1, length, width - 1).view_as(state));
  return result;
}

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<CausalConv>(m).implement_cpu<causal_conv_cpu>(); }

}  // namespace
}  // namespace second
