// second::sincos(Tensor input) -> (Tensor sine, Tensor cosine): two outputs, which its derivative reads and of
// which a program may use one only.

#include <torch/library.h>

#include <cmath>

#include "core/autograd.h"
#include "core/check.h"
#include "core/define.h"
#include "core/vmap.h"
#include "elementwise.h"

namespace second {
namespace {

using Forward = core::Op<"second::sincos", std::tuple<Tensor, Tensor>(const Tensor& input)>;

// The gradient of an output that nothing depends on is missing.
using Backward =
    core::Op<"second::_sincos_backward", Tensor(const OptionalTensor& grad_sine, const OptionalTensor& grad_cosine,
                                                const Tensor& sine, const Tensor& cosine)>;

// input [B?, N, F] -> sine, cosine [B?, N, F]
std::array<core::Output, 2> forward_shape(const Tensor& input) {
  core::Checker check("sincos");
  check.floating("input", input);
  check.shape("input", input, "[B?, N, F]");
  const core::Output like{check.sizes("[B?, N, F]"), input.options()};
  return {like, like};
}

// all [B?, N, F]
core::Output backward_shape(const OptionalTensor& grad_sine, const OptionalTensor& grad_cosine, const Tensor& sine,
                            const Tensor& cosine) {
  core::Checker check("_sincos_backward");
  auto like_sine = [&](const char* argument, const Tensor& t) {
    check.floating(argument, t);
    check.same_dtype(argument, t, "sine", sine);
    check.same_device(argument, t, "sine", sine);
    check.shape(argument, t, "[B?, N, F]");
  };
  like_sine("sine", sine);
  like_sine("cosine", cosine);
  if (grad_sine) like_sine("grad_sine", *grad_sine);
  if (grad_cosine) like_sine("grad_cosine", *grad_cosine);
  return {check.sizes("[B?, N, F]"), sine.options()};
}

std::tuple<Tensor, Tensor> forward_cpu(const Tensor& input) {
  auto [sine, cosine] = core::allocate(forward_shape(input));
  map(sine, [](auto x) { return std::sin(x); }, input);
  map(cosine, [](auto x) { return std::cos(x); }, input);
  return {sine, cosine};
}

Tensor backward_cpu(const OptionalTensor& grad_sine, const OptionalTensor& grad_cosine, const Tensor& sine,
                    const Tensor& cosine) {
  Tensor out = core::allocate(backward_shape(grad_sine, grad_cosine, sine, cosine));
  map(
      out, [](auto gs, auto gc, auto s, auto c) { return gs * c - gc * s; }, core::tensor_or_undefined(grad_sine),
      core::tensor_or_undefined(grad_cosine), sine, cosine);
  return out;
}

struct ForwardFormula {
  using Op = Forward;
  enum : unsigned { sine = 1, cosine = 2 };
  static constexpr std::array<core::Reads, 1> reads{{{.outputs = sine | cosine}}};

  static std::array<Tensor, 1> vjp(const std::array<Tensor, 2>& grads, const core::Saved<ForwardFormula>& saved,
                                   const std::array<bool, 1>&) {
    const auto& [s, c] = saved.outputs;
    return {Backward::call(core::optional(grads[0]), core::optional(grads[1]), s, c)};
  }

  static std::array<Tensor, 2> jvp(const std::array<Tensor, 1>& tangents, const core::Saved<ForwardFormula>& saved) {
    const auto& [s, c] = saved.outputs;
    return {tangents[0] * c, -(tangents[0] * s)};
  }
};

// grad_sine * cosine - grad_cosine * sine
struct BackwardFormula {
  using Op = Backward;
  enum : unsigned { grad_sine = 1, grad_cosine = 2, sine = 4, cosine = 8 };
  static constexpr std::array<core::Reads, 4> reads{{
      /*grad_sine*/ {.inputs = cosine},
      /*grad_cosine*/ {.inputs = sine},
      /*sine*/ {.inputs = grad_cosine},
      /*cosine*/ {.inputs = grad_sine},
  }};

  static std::array<Tensor, 4> vjp(const std::array<Tensor, 1>& grads, const core::Saved<BackwardFormula>& saved,
                                   const std::array<bool, 4>& need) {
    const auto& [gs, gc, s, c] = saved.inputs;
    const Tensor& g = grads[0];
    std::array<Tensor, 4> result;
    auto& [by_gs, by_gc, by_s, by_c] = result;
    if (need[0]) by_gs = g * c;
    if (need[1]) by_gc = -(g * s);
    if (need[2] && gc.defined()) by_s = -(g * gc);
    if (need[3] && gs.defined()) by_c = g * gs;
    return result;
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 4>& tangents, const core::Saved<BackwardFormula>& saved) {
    const auto& [gs, gc, s, c] = saved.inputs;
    const auto& [t_gs, t_gc, t_s, t_c] = tangents;
    Tensor out;
    if (t_gs.defined()) core::accumulate(out, t_gs * c);
    if (t_gc.defined()) core::accumulate(out, -(t_gc * s));
    if (t_s.defined() && gc.defined()) core::accumulate(out, -(t_s * gc));
    if (t_c.defined() && gs.defined()) core::accumulate(out, t_c * gs);
    return {out};
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  core::define<Forward, forward_shape>(m, "sincos(Tensor input) -> (Tensor sine, Tensor cosine)");
  core::define<Backward, backward_shape>(
      m, "_sincos_backward(Tensor? grad_sine, Tensor? grad_cosine, Tensor sine, Tensor cosine) -> Tensor");
}

TORCH_LIBRARY_IMPL(second, CPU, m) {
  m.impl(Forward::name, TORCH_FN(forward_cpu));
  m.impl(Backward::name, TORCH_FN(backward_cpu));
}

TORCH_LIBRARY_IMPL(second, Autograd, m) {
  m.impl(Forward::name, core::autograd<ForwardFormula>());
  m.impl(Backward::name, core::autograd<BackwardFormula>());
}

// Every tensor is rows of [F].
TORCH_LIBRARY_IMPL(second, FuncTorchBatched, m) {
  m.impl(Forward::name, core::vmap_rows<Forward, forward_shape, 1>());
  m.impl(Backward::name, core::vmap_rows<Backward, backward_shape, 1, 1, 1, 1>());
}

}  // namespace
}  // namespace second
