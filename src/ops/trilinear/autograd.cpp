#include <ATen/ops/ones.h>
#include <torch/library.h>

#include "interpolation/formulas.h"
#include "ops/trilinear/op.h"

namespace cppcuda::ops::trilinear {
namespace {

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
  struct Attributes {};

  template <class Saved>
  explicit Corners(const Saved&) {}

  static Tensor forward(const Tensor& feats, const Tensor& points) { return Forward::call(feats, points); }
  static auto backward(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                       const c10::List<bool>& output_mask) {
    return Backward::call(grad, feats, points, output_mask);
  }
  static std::tuple<Tensor, Tensor, Tensor> double_backward(const Tensor& grad, const OptionalTensor& feats,
                                                            const Tensor& points, const OptionalTensor& grad_grad_feats,
                                                            const Tensor& grad_grad_points,
                                                            const c10::List<bool>& output_mask,
                                                            const interpolation::Orders& order) {
    if (!interpolation::is_given(order))
      return DoubleBackward::call(grad, feats, points, grad_grad_feats, grad_grad_points, output_mask);
    // The corners of all points as the rows of one table.
    const c10::SymInt count = points.sym_size(-2), rows = 8 * count, features = grad.sym_size(-1);
    const auto sizes = [&](std::initializer_list<c10::SymInt> last) {
      c10::SymDimVector result(points.sym_sizes().slice(0, points.dim() - 2));
      result.append(last.begin(), last.end());
      return result;
    };
    const auto as_table = [&](const OptionalTensor& x) {
      return x.has_value() ? OptionalTensor(x->reshape_symint(sizes({rows, features}))) : x;
    };
    const Tensor numbers = at::ones_symint({count, 8}, points.options().dtype(at::kLong)).flatten().cumsum(0) - 1;
    const Tensor corners = numbers.reshape_symint({count, 8}).expand_symint(sizes({count, 8}));
    auto [grad_grad, grad_table, grad_points] =
        IndexedDoubleBackward::call(grad, as_table(feats), corners, points, as_table(grad_grad_feats), grad_grad_points,
                                    c10::SymIntArrayRef(rows), output_mask, order);
    if (output_mask[1]) grad_table = grad_table.reshape_symint(sizes({count, 8, features}));
    return {grad_grad, grad_table, grad_points};
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) { interpolation::implement_autograd<Corners>(m); }

}  // namespace
}  // namespace cppcuda::ops::trilinear
