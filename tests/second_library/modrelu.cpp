// second::modrelu: z max(|z| + bias, 0) / |z|, an activation of complex networks, whose phase is that of z
// (Arjovsky et al., 2016, https://arxiv.org/abs/1511.06464). It is 0 where z is 0.

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/fill.h"
#include "modrelu.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using ModRelu = kit::Op<
    "second::modrelu(Tensor z[..., F] complex64 or complex128, Tensor bias[F] float32 or float64) -> Tensor[..., F]">;

kit::Output modrelu_shape(const kit::Args<ModRelu>& args) {
  const Tensor& z = args["z"];
  kit::checked(args);
  kit::Checker("modrelu").same_dtype("bias", args["bias"], "the parts of z", c10::toRealValueType(z.scalar_type()));
  return {c10::SymDimVector(z.sym_sizes()), z.options()};
}

void modrelu(const kit::Args<ModRelu>& args, const kit::Outputs<ModRelu>& out) {
  const Tensor z = at::view_as_real(args["z"].resolve_conj()), output = at::view_as_real(out["output"]);
  const Tensor& bias = args["bias"];
  const auto run = [&]<class T>(T) {
    kit::run(z.device(), ModReluLoop<T>{kit::view_of<const T, 3>(z), kit::view_of<const T, 1>(bias),
                                        kit::view_of<T, 3>(output), z.size(0) * z.size(1)});
  };
  bias.scalar_type() == at::kFloat ? run(float()) : run(double());
}

// With s = max(|z| + b, 0) / |z|: d(z s) = s dz + z ds, and where |z| + b > 0, ds = db / |z| - b d|z| / |z|^2 and
// d|z| = Re(conj(z) dz) / |z|. Elsewhere both are 0.
struct Formula {
  using Op = ModRelu;
  static constexpr auto reads = kit::reads<Op>({{"z", {"z", "bias"}}, {"bias", {"z", "bias"}}});

  struct Parts {
    Tensor z, bias, over_size, scale;  // over_size: 1 / |z|, or 0 where the result is
  };
  static Parts parts(const kit::Saved<Formula>& saved) {
    const auto& [z, bias] = saved.get<"z", "bias">();
    const Tensor size = z.abs(), active = (size + bias > 0) & (size > 0);
    const Tensor over_size = at::where(active, at::where(active, size, 1).reciprocal(), 0);
    return {z, bias, over_size, (size + bias) * over_size};
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<Formula>& saved,
                             const kit::Need<Op>& need) {
    const Parts p = parts(saved);
    const Tensor &grad = grads["output"], along = at::real(grad.conj() * p.z) * p.over_size;
    kit::Inputs<Op> result;
    if (need["z"]) result["z"] = p.scale * grad - p.bias * along * p.over_size.square() * p.z;
    if (need["bias"]) result["bias"] = at::sum_to(along, p.bias.sym_sizes());
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<Formula>& saved) {
    const Parts p = parts(saved);
    Tensor result, scale;
    if (const Tensor& dz = tangents["z"]; dz.defined()) {
      result = p.scale * dz;
      scale = -p.bias * at::real(p.z.conj() * dz) * p.over_size.pow(3);
    }
    if (const Tensor& db = tangents["bias"]; db.defined()) kit::accumulate(scale, db * p.over_size);
    kit::accumulate(result, p.z * scale);
    return result;
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<ModRelu, modrelu_shape>(m).implement<modrelu>().differentiate<Formula>();
}

}  // namespace
}  // namespace second
