// second::cube: x^3, with the strides of x.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Cube = kit::Op<"second::cube(Tensor x[B?, N, F]) -> Tensor[B?, N, F]", kit::StridesOf<"x">, kit::Sharded<"F">>;

void cube_cpu(const kit::Args<Cube>& args, const kit::Outputs<Cube>& out) {
  const Tensor& x = args["x"];
  kit::visit_dtype(x.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = kit::view_of<const T, 3>(x);
    const auto to = kit::view_of<T, 3>(out["output"]);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto [b, n, f] = from.indices(i);
      const auto value = static_cast<kit::opmath<T>>(from(b, n, f));
      to(b, n, f) = static_cast<T>(value * value * value);
    }
  });
}

struct Formula {
  using Op = Cube;
  static constexpr auto reads = kit::reads<Op>({{"x", {"x"}}});

  static Tensor derivative(const Tensor& t, const kit::Saved<Formula>& saved) {
    const Tensor x = kit::in_opmath(saved["x"]);
    return (3 * x * x * t).to(t.scalar_type());
  }
  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<Formula>& saved, const kit::Need<Op>&) {
    return derivative(grads["output"], saved);
  }
  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<Formula>& saved) {
    return derivative(tangents["x"], saved);
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Cube>(m).implement_cpu<cube_cpu>().differentiate<Formula>(); }

}  // namespace
}  // namespace second
