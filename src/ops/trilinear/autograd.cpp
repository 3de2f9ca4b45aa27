#include <torch/library.h>

#include "interpolation/formulas.h"
#include "ops/trilinear/op.h"

namespace cppcuda::ops::trilinear {
namespace {

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
  static auto double_backward(const Tensor& grad, const OptionalTensor& feats, const Tensor& points,
                              const OptionalTensor& grad_grad_feats, const Tensor& grad_grad_points,
                              const c10::List<bool>& output_mask) {
    return DoubleBackward::call(grad, feats, points, grad_grad_feats, grad_grad_points, output_mask);
  }

  static Tensor gather(const Tensor& feats) { return feats; }
  static Tensor scatter(const Tensor& of_corners) { return of_corners; }
  static interpolation::Weights weights(const Tensor& points) { return interpolation::unit_weights(points); }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) { interpolation::implement_autograd<Corners>(m); }

}  // namespace
}  // namespace cppcuda::ops::trilinear
