// second::trilinear is a different function from cppcuda::trilinear: points[n, 0] times the sum of the corners. Its
// namespace, formulas and shape functions have the same names as those of cppcuda::trilinear and are not in an
// anonymous namespace, to test that neither library runs code of the other.

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/vmap.h"

namespace cppcuda::ops::trilinear {

using kit::OptionalTensor;
using kit::Tensor;

using Forward = kit::Op<"second::trilinear", Tensor(const Tensor& feats, const Tensor& points)>;
using Backward = kit::Op<"second::_trilinear_backward",
                         std::tuple<Tensor, Tensor>(const Tensor& grad, const OptionalTensor& feats,
                                                    const Tensor& points, c10::List<bool> output_mask)>;

kit::Output forward_shape(const Tensor& feats, const Tensor& points) {
  kit::Checker check("trilinear");
  check.shape("feats", feats, "[B?, N, 8, F]");
  check.shape("points", points, "[B?, N, 3]");
  return {check.sizes("[B?, N, F]"), feats.options()};
}

std::array<kit::Output, 2> backward_shape(const Tensor& grad, const OptionalTensor&, const Tensor& points,
                                          const c10::List<bool>& output_mask) {
  kit::Checker check("_trilinear_backward");
  const auto [need_feats, need_points] = check.mask<2>("output_mask", output_mask);
  check.shape("grad", grad, "[B?, N, F]");
  check.shape("points", points, "[B?, N, 3]");
  return {need_feats ? kit::Output{check.sizes("[B?, N, 8, F]"), grad.options()} : kit::placeholder(grad),
          need_points ? kit::Output{check.sizes("[B?, N, 3]"), points.options()} : kit::placeholder(points)};
}

// [..., 3] -> [..., 1]
Tensor first(const Tensor& points) { return points.narrow(-1, 0, 1); }

// [..., 1] -> [..., 3]
Tensor in_first(const Tensor& value) {
  const Tensor zero = at::zeros_like(value);
  return at::cat({value, zero, zero}, -1);
}

Tensor interpolate(const Tensor& feats, const Tensor& points) { return first(points) * feats.sum(-2); }

// [..., F] -> [..., 8, F]
Tensor spread(const Tensor& grad, const Tensor& points) {
  auto sizes = grad.sym_sizes().vec();
  sizes.insert(sizes.end() - 1, 8);
  return (first(points) * grad).unsqueeze(-2).expand_symint(sizes);
}

// [..., F], [..., 8, F] -> [..., 3]
Tensor project(const Tensor& grad, const Tensor& feats) { return in_first((grad * feats.sum(-2)).sum(-1, true)); }

Tensor forward_cpu(const Tensor& feats, const Tensor& points) {
  Tensor out = kit::allocate(forward_shape(feats, points));
  return out.copy_(interpolate(feats, points));
}

std::tuple<Tensor, Tensor> backward_cpu(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                                        c10::List<bool> output_mask) {
  auto [grad_feats, grad_points] = kit::allocate(backward_shape(grad, feats, points, output_mask));
  if (output_mask[0]) grad_feats.copy_(spread(grad, points));
  if (output_mask[1]) grad_points.copy_(project(grad, *feats));
  return {grad_feats, grad_points};
}

struct ForwardFormula {
  using Op = Forward;
  static constexpr std::array<kit::Reads, 2> reads{{{.inputs = 2}, {.inputs = 1 | 2}}};

  static std::array<Tensor, 2> vjp(const std::array<Tensor, 1>& grads, const kit::Saved<ForwardFormula>& saved,
                                   const std::array<bool, 2>& need) {
    const auto& [x, p] = saved.inputs;
    return kit::to_array(Backward::call(grads[0], need[1] ? OptionalTensor(x) : std::nullopt, p, kit::to_list(need)));
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 2>& tangents, const kit::Saved<ForwardFormula>& saved) {
    const auto& [x, p] = saved.inputs;
    Tensor out;
    if (tangents[0].defined()) kit::accumulate(out, interpolate(tangents[0], p));
    if (tangents[1].defined()) kit::accumulate(out, interpolate(x, tangents[1]));
    return {out};
  }
};

struct BackwardFormula {
  using Op = Backward;
  static constexpr std::array<kit::Reads, 3> reads{{{.inputs = 2 | 4}, {.inputs = 1}, {.inputs = 1}}};

  static std::array<Tensor, 3> vjp(const std::array<Tensor, 2>& grads, const kit::Saved<BackwardFormula>& saved,
                                   const std::array<bool, 3>& need) {
    const auto& [g, x, p] = saved.inputs;
    const auto& [of_dx, of_dp] = grads;
    std::array<Tensor, 3> result;
    if (of_dx.defined()) {
      if (need[0]) kit::accumulate(result[0], interpolate(of_dx, p));
      if (need[2]) kit::accumulate(result[2], project(g, of_dx));
    }
    if (of_dp.defined()) {
      if (need[0]) kit::accumulate(result[0], interpolate(x, of_dp));
      if (need[1]) kit::accumulate(result[1], spread(g, of_dp));
    }
    return result;
  }

  static std::array<Tensor, 2> jvp(const std::array<Tensor, 3>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const auto& [g, x, p] = saved.inputs;
    const auto& [tg, tx, tp] = tangents;
    const auto& mask = std::get<0>(saved.attributes);
    std::array<Tensor, 2> result;
    if (tg.defined() && mask[0]) kit::accumulate(result[0], spread(tg, p));
    if (tp.defined() && mask[0]) kit::accumulate(result[0], spread(g, tp));
    if (tg.defined() && mask[1]) kit::accumulate(result[1], project(tg, x));
    if (tx.defined() && mask[1]) kit::accumulate(result[1], project(g, tx));
    return result;
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Forward, forward_shape>(m, "trilinear(Tensor feats, Tensor points) -> Tensor");
  kit::define<Backward, backward_shape>(
      m, "_trilinear_backward(Tensor grad, Tensor? feats, Tensor points, bool[2] output_mask) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(second, CPU, m) {
  m.impl(Forward::name, TORCH_FN(forward_cpu));
  m.impl(Backward::name, TORCH_FN(backward_cpu));
}

TORCH_LIBRARY_IMPL(second, Autograd, m) {
  m.impl(Forward::name, kit::autograd<ForwardFormula>());
  m.impl(Backward::name, kit::autograd<BackwardFormula>());
}

TORCH_LIBRARY_IMPL(second, FuncTorchBatched, m) {
  m.impl(Forward::name, kit::vmap_rows<Forward, forward_shape, 2, 1>());
  m.impl(Backward::name, kit::vmap_rows<Backward, backward_shape, 1, 2, 1>());
}

}  // namespace cppcuda::ops::trilinear
