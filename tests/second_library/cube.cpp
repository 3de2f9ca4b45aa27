// second::cube: x^3, with the strides of x.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "batched.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Cube = kit::Op<"second::cube(Tensor x[B?, N, F]) -> Tensor[B?, N, F]", kit::StridesOf<"x">, kit::Sharded<"F">>;

void cube_cpu(const kit::Args<Cube>& args, const kit::Outputs<Cube>& out) {
  const Tensor x = batched(args["x"], 3), output = batched(out["output"], 3);
  kit::visit_dtype(x.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = x.accessor<const T, 3>();
    auto to = output.accessor<T, 3>();
    for (int64_t b = 0; b < x.size(0); ++b) {
      for (int64_t n = 0; n < x.size(1); ++n) {
        for (int64_t f = 0; f < x.size(2); ++f) {
          const auto value = static_cast<kit::opmath<T>>(from[b][n][f]);
          to[b][n][f] = static_cast<T>(value * value * value);
        }
      }
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
