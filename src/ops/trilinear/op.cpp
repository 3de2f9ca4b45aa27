#include "ops/trilinear/op.h"

#include <ATen/ops/ones.h>
#include <cppcuda/ops/trilinear.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/row_strides.h"
#include "interpolation/formulas.h"
#include "ops/trilinear/params.h"

namespace cppcuda {

Tensor trilinear(const Tensor& feats, const Tensor& points) {
  return kit::call<ops::trilinear::Forward>(feats, points);
}

namespace ops::trilinear {
namespace {

// ---- kernels

using kit::data_of;
using kit::make_rows;
using kit::mutable_data_of;
using kit::row_stride;

// The strides of features [B?, N, 8, F]. If these are missing, the kernel reads none, and any even strides will do.
RowStride corner_rows(const Tensor& t, const Tensor& points) {
  return t.defined() ? row_stride(t, 2) : RowStride{points.size(-2), 1};
}
int64_t corner_stride(const Tensor& t) { return t.defined() ? t.stride(-2) : 0; }
int64_t feature_stride(const Tensor& t) { return t.defined() ? t.stride(-1) : 1; }

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& outputs) {
  const Tensor &feats = args["feats"], &points = args["points"], &out = outputs["output"];
  if (out.numel() == 0) return;
  const auto feats_rows = row_stride(feats, 2), points_rows = row_stride(points, 1);
  auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(feats.device(), ForwardParams<T, P>{.feats = feats.const_data_ptr<T>(),
                                                 .points = points.const_data_ptr<P>(),
                                                 .out = out.mutable_data_ptr<T>(),
                                                 .rows = make_rows(points, 1, feats_rows, points_rows),
                                                 .features = feats.size(-1),
                                                 .feats_rows = feats_rows,
                                                 .points_rows = points_rows,
                                                 .feats_corner = feats.stride(-2),
                                                 .feats_feature = feats.stride(-1),
                                                 .points_coordinate = points.stride(-1)});
  };
  kit::visit_dtypes(feats.scalar_type(), points.scalar_type(), call);
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  const Tensor &grad = args["grad"], &points = args["points"];
  const Tensor &grad_feats = out["grad(feats)"], &grad_points = out["grad(points)"];
  if (grad.numel() == 0) {
    if (grad_points.defined()) grad_points.zero_();  // an empty sum
    return;
  }
  if (!grad_feats.defined() && !grad_points.defined()) return;
  const Tensor x = grad_points.defined() ? args["feats"] : Tensor();  // the gradient of feats does not read feats
  const auto grad_rows = row_stride(grad, 1), points_rows = row_stride(points, 1), feats_rows = corner_rows(x, points);
  auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(grad.device(), BackwardParams<T, P>{.grad = grad.const_data_ptr<T>(),
                                                 .feats = data_of<T>(x),
                                                 .points = points.const_data_ptr<P>(),
                                                 .grad_feats = mutable_data_of<T>(grad_feats),
                                                 .grad_points = mutable_data_of<P>(grad_points),
                                                 .rows = make_rows(points, 1, grad_rows, feats_rows, points_rows),
                                                 .features = grad.size(-1),
                                                 .grad_rows = grad_rows,
                                                 .feats_rows = feats_rows,
                                                 .points_rows = points_rows,
                                                 .grad_feature = grad.stride(-1),
                                                 .feats_corner = corner_stride(x),
                                                 .feats_feature = feature_stride(x),
                                                 .points_coordinate = points.stride(-1)});
  };
  kit::visit_dtypes(grad.scalar_type(), points.scalar_type(), call);
}

void double_backward(const kit::Args<DoubleBackward>& args, const kit::Outputs<DoubleBackward>& out) {
  const Tensor &grad = args["grad"], &points = args["points"], &directions = args["grad_grad_points"];
  const Tensor &grad_grad = out["grad(grad)"], &grad_feats = out["grad(feats)"], &grad_points = out["grad(points)"];
  if (grad.numel() == 0) {
    if (grad_points.defined()) grad_points.zero_();  // an empty sum
    return;
  }
  const bool reads = grad_grad.defined() || grad_points.defined();
  if (!reads && !grad_feats.defined()) return;
  const Tensor x = reads ? args["feats"] : Tensor(), u = reads ? args["grad_grad_feats"] : Tensor();
  const auto grad_rows = row_stride(grad, 1), points_rows = row_stride(points, 1),
             directions_rows = row_stride(directions, 1), feats_rows = corner_rows(x, points),
             u_rows = corner_rows(u, points);
  auto call = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    kit::run(grad.device(), DoubleBackwardParams<T, P>{.grad = grad.const_data_ptr<T>(),
                                                       .feats = data_of<T>(x),
                                                       .points = points.const_data_ptr<P>(),
                                                       .grad_grad_feats = data_of<T>(u),
                                                       .grad_grad_points = directions.const_data_ptr<P>(),
                                                       .grad_grad = mutable_data_of<T>(grad_grad),
                                                       .grad_feats = mutable_data_of<T>(grad_feats),
                                                       .grad_points = mutable_data_of<P>(grad_points),
                                                       .rows = make_rows(points, 1, grad_rows, feats_rows, points_rows,
                                                                         u_rows, directions_rows),
                                                       .features = grad.size(-1),
                                                       .grad_rows = grad_rows,
                                                       .feats_rows = feats_rows,
                                                       .points_rows = points_rows,
                                                       .grad_grad_feats_rows = u_rows,
                                                       .grad_grad_points_rows = directions_rows,
                                                       .grad_feature = grad.stride(-1),
                                                       .feats_corner = corner_stride(x),
                                                       .feats_feature = feature_stride(x),
                                                       .points_coordinate = points.stride(-1),
                                                       .grad_grad_feats_corner = corner_stride(u),
                                                       .grad_grad_feats_feature = feature_stride(u),
                                                       .grad_grad_points_coordinate = directions.stride(-1)});
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

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward>(m).implement<forward>().differentiate<interpolation::ForwardFormula<Corners>>();
  kit::define<Backward>(m).implement<backward>().differentiate<interpolation::BackwardFormula<Corners>>();
  kit::define<DoubleBackward>(m)
      .implement<double_backward>()
      .differentiate<interpolation::DoubleBackwardFormula<Corners>>();
}

}  // namespace
}  // namespace ops::trilinear
}  // namespace cppcuda
