// second::sincos(Tensor input) -> (Tensor sine, Tensor cosine): the derivative reads both outputs, and a program may
// use only one of them.

#include <torch/library.h>

#include <cmath>

#include "cppcuda/kit/define.h"
#include "map.h"

namespace second {
namespace {

using Forward = kit::Op<"second::sincos(Tensor input[B?, N, F]) -> (Tensor sine[B?, N, F], Tensor cosine[B?, N, F])",
                        kit::Variants>;

// The gradient of an output is None if nothing depends on that output.
using Backward = kit::Op<
    "second::_sincos_backward(Tensor? grad_sine[B?, N, F], Tensor? grad_cosine[B?, N, F], "
    "Tensor sine[B?, N, F], Tensor cosine[B?, N, F]) -> Tensor[B?, N, F]">;

void forward_cpu(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  map(out["sine"], [](auto x) { return std::sin(x); }, args["input"]);
  map(out["cosine"], [](auto x) { return std::cos(x); }, args["input"]);
}

void backward_cpu(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  map(
      out["output"], [](auto gs, auto gc, auto s, auto c) { return gs * c - gc * s; }, args["grad_sine"],
      args["grad_cosine"], args["sine"], args["cosine"]);
}

struct ForwardFormula {
  using Op = Forward;
  static constexpr auto reads = kit::reads<Op>({{"input", {"sine", "cosine"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    return Backward::call(kit::to_optional(grads["sine"]), kit::to_optional(grads["cosine"]), saved["sine"],
                          saved["cosine"]);
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    const Tensor& t = tangents["input"];
    return {t * saved["cosine"], -(t * saved["sine"])};
  }
};

// grad_sine * cosine - grad_cosine * sine
struct BackwardFormula {
  using Op = Backward;
  static constexpr auto reads = kit::reads<Op>({
      {"grad_sine", {"cosine"}},
      {"grad_cosine", {"sine"}},
      {"sine", {"grad_cosine"}},
      {"cosine", {"grad_sine"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto [gs, gc, s, c] = saved.get<"grad_sine", "grad_cosine", "sine", "cosine">();
    const Tensor& g = grads["output"];
    kit::Inputs<Op> result;
    if (need["grad_sine"]) result["grad_sine"] = g * c;
    if (need["grad_cosine"]) result["grad_cosine"] = -(g * s);
    if (need["sine"] && gc.defined()) result["sine"] = -(g * gc);
    if (need["cosine"] && gs.defined()) result["cosine"] = g * gs;
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const auto [gs, gc, s, c] = saved.get<"grad_sine", "grad_cosine", "sine", "cosine">();
    const auto [t_gs, t_gc, t_s, t_c] = tangents.get<"grad_sine", "grad_cosine", "sine", "cosine">();
    Tensor out;
    if (t_gs.defined()) kit::accumulate(out, t_gs * c);
    if (t_gc.defined()) kit::accumulate(out, -(t_gc * s));
    if (t_s.defined() && gc.defined()) kit::accumulate(out, -(t_s * gc));
    if (t_c.defined() && gs.defined()) kit::accumulate(out, t_c * gs);
    return out;
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Forward>(m).implement_cpu<forward_cpu>().differentiate<ForwardFormula>();
  kit::define<Backward>(m).implement_cpu<backward_cpu>().differentiate<BackwardFormula>();
}

}  // namespace
}  // namespace second
