#include "ops/trilinear/op.h"

#include <ATen/ops/ones.h>
#include <cppcuda/ops/trilinear.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "interpolation/formulas.h"
#include "ops/trilinear/params.h"

namespace cppcuda {

Tensor trilinear(const Tensor& feats, const Tensor& points) {
  return kit::call<ops::trilinear::Forward>(feats, points);
}

namespace ops::trilinear {
namespace {

// ---- kernels

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  const Tensor &feats = args["feats"], &points = args["points"];
  if (out["output"].numel() == 0) return;
  const auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(feats.device(), kit::fill<ForwardParams<T, P>>(args, out, kit::make_rows(args), feats.size(-1)));
  };
  kit::visit_dtypes(feats.scalar_type(), points.scalar_type(), call);
}

// The derivatives of forward. Both kernels compute the outputs that are defined.
template <template <class, class> class Params, class TheOp>
void derivative(const kit::Args<TheOp>& args, const kit::Outputs<TheOp>& out) {
  const Tensor &grad = args["grad"], &points = args["points"], &grad_points = out["grad(points)"];
  if (grad.numel() == 0) {
    if (grad_points.defined()) grad_points.zero_();  // an empty sum
    return;
  }
  if (std::none_of(out.begin(), out.end(), [](const Tensor& t) { return t.defined(); })) return;
  const auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(grad.device(), kit::fill<Params<T, P>>(args, out, kit::make_rows(args), grad.size(-1)));
  };
  kit::visit_dtypes(grad.scalar_type(), points.scalar_type(), call);
}

// ---- derivatives

// Operators do not include each other's files, so this one is known by its name.
using IndexedDoubleBackward =
    kit::Op<"cppcuda::_trilinear_indexed_double_backward",
            std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const OptionalTensor&, const Tensor&, const Tensor&,
                                               const OptionalTensor&, const Tensor&, c10::SymIntArrayRef,
                                               c10::List<bool>, at::IntArrayRef)>;

// Each point has the features of its corners.
struct Corners {
  using Forward = trilinear::Forward;
  using Backward = trilinear::Backward;
  using DoubleBackward = trilinear::DoubleBackward;
  static constexpr const char *features = "feats", *grad_features = "grad(feats)", *second = "grad_grad_feats";

  // The call of trilinear_indexed where the corners of all points are the rows of one table.
  static kit::Outputs<DoubleBackward> double_backward_of_order(const kit::Call<DoubleBackward>& call,
                                                               const interpolation::Orders& order) {
    const Tensor &grad = call.tensors["grad"], &points = call.tensors["points"];
    const c10::SymInt count = points.sym_size(-2), rows = 8 * count, features = grad.sym_size(-1);
    const auto sizes = [&](std::initializer_list<c10::SymInt> last) {
      c10::SymDimVector result(points.sym_sizes().slice(0, points.dim() - 2));
      result.append(last.begin(), last.end());
      return result;
    };
    const auto as_table = [&](const Tensor& x) {
      return x.defined() ? OptionalTensor(x.reshape_symint(sizes({rows, features}))) : std::nullopt;
    };
    const Tensor numbers = at::ones_symint({count, 8}, points.options().dtype(at::kLong)).flatten().cumsum(0) - 1;
    const Tensor corners = numbers.reshape_symint({count, 8}).expand_symint(sizes({count, 8}));
    const kit::OutputMask& mask = call.attribute<"output_mask">();
    auto result = kit::to_array(IndexedDoubleBackward::call(
        grad, as_table(call.tensors["feats"]), corners, points, as_table(call.tensors["grad_grad_feats"]),
        call.tensors["grad_grad_points"], c10::SymIntArrayRef(rows), kit::to_list(mask), order));
    if (mask[1]) result[1] = result[1].reshape_symint(sizes({count, 8, features}));
    return result;
  }
};

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward>(m).implement<forward>().differentiate<interpolation::ForwardFormula<Corners>>();
  kit::define<Backward>(m)
      .implement<derivative<BackwardParams, Backward>>()
      .differentiate<interpolation::BackwardFormula<Corners>>();
  kit::define<DoubleBackward>(m)
      .implement<derivative<DoubleBackwardParams, DoubleBackward>>()
      .differentiate<interpolation::DoubleBackwardFormula<Corners>>();
}

}  // namespace
}  // namespace ops::trilinear
}  // namespace cppcuda
