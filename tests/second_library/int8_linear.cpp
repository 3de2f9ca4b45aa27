// second::int8_linear: a linear layer whose weights are int8, with a scale for each row of them, as in weight-only
// quantisation. Points that `mask` excludes, such as padding, give zeros.

#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "int8_linear.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Int8Linear = kit::Op<
    "second::int8_linear(Tensor x[..., K], Tensor weight[M, K] int8, Tensor scale[M], Tensor? mask[...] bool=None) -> "
    "Tensor[..., M]",
    kit::UnderAutocast<kit::CastPolicy::lower_precision_fp>>;

void int8_linear(const kit::Args<Int8Linear>& args, const kit::Outputs<Int8Linear>& out) {
  const Tensor &x = args["x"], &output = out["output"];
  kit::visit_dtype(x.scalar_type(), [&]<class T>(std::type_identity<T>) {
    kit::run(x.device(),
             Int8LinearLoop<T>{kit::view_of<const T, 2>(x), kit::view_of<const int8_t, 2>(args["weight"]),
                               kit::view_of<const T, 1>(args["scale"]), kit::view_of<const bool, 1>(args["mask"]),
                               kit::view_of<T, 2>(output), output.numel(), x.size(1)});
  });
}

// The mask has no gradient and the weights have none.
struct ForwardFormula {
  using Op = Int8Linear;
  static constexpr auto reads = kit::reads<Op>({{"x", {"scale"}}, {"scale", {"x"}}});

  static Tensor kept(const Tensor& t, const kit::Saved<ForwardFormula>& saved) {
    const Tensor& mask = saved["mask"];
    return mask.defined() ? t * mask.unsqueeze(-1) : t;
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto& [x, scale] = saved.get<"x", "scale">();
    const Tensor grad = kit::in_opmath(kept(grads["output"], saved));
    const Tensor weight = saved["weight"].to(grad.scalar_type());
    kit::Inputs<Op> result;
    if (need["x"]) {
      result["x"] = ((grad * scale).unsqueeze(-1) * weight).sum(-2).to(scale.scalar_type());
    }
    if (need["scale"]) {
      const Tensor products = grad * (kit::in_opmath(x).unsqueeze(-2) * weight).sum(-1);
      result["scale"] = at::sum_to(products, c10::SymIntArrayRef{weight.sym_size(0)}).to(x.scalar_type());
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    kit::Outputs<Op> result;
    const auto add = [&](const Tensor& x, const Tensor& scale) {
      if (!x.defined() || !scale.defined()) return;
      kit::accumulate(result["output"], Op::call(x, saved["weight"], scale, kit::to_optional(saved["mask"])));
    };
    add(tangents["x"], saved["scale"]);
    add(saved["x"], tangents["scale"]);
    return result;
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Int8Linear>(m).implement<int8_linear>().differentiate<ForwardFormula>();
}

}  // namespace
}  // namespace second
