#include <torch/library.h>

#include <string>

#include "interpolation/formulas.h"
#include "ops/grid_sample3d/op.h"

namespace cppcuda::ops::grid_sample3d {
namespace {

// The corners of points are voxels.
class Volume {
 public:
  using Forward = grid_sample3d::Forward;
  using Backward = grid_sample3d::Backward;
  using DoubleBackward = grid_sample3d::DoubleBackward;
  static constexpr const char *features = "input", *grad_features = "grad(input)", *second = "grad_grad_input";

  // The size [D, H, W] of the volume, which the other operators take.
  struct Attributes {
    static constexpr auto attribute_names = kit::names("size");
    static auto attributes(const Tensor& input, const Tensor&, std::string_view, bool) {
      return std::make_tuple(std::vector<c10::SymInt>{input.sym_size(-4), input.sym_size(-3), input.sym_size(-2)});
    }
  };

  template <class Saved>
  explicit Volume(const Saved& saved)
      : size_(saved.template attribute<"size">()),
        padding_mode_(saved.template attribute<"padding_mode">()),
        align_corners_(saved.template attribute<"align_corners">()) {}

  Tensor forward(const Tensor& input, const Tensor& points) const {
    return Forward::call(input, points, padding_mode_, align_corners_);
  }
  auto backward(const Tensor& grad, const OptionalTensor& input, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return Backward::call(grad, input, points, size_, padding_mode_, align_corners_, output_mask);
  }
  auto double_backward(const Tensor& grad, const OptionalTensor& input, const Tensor& points,
                       const OptionalTensor& grad_grad_input, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask, at::IntArrayRef order) const {
    return DoubleBackward::call(grad, input, points, grad_grad_input, grad_grad_points, size_, padding_mode_,
                                align_corners_, output_mask, order);
  }

 private:
  std::vector<c10::SymInt> size_;
  std::string padding_mode_;
  bool align_corners_;
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) { interpolation::implement_autograd<Volume>(m); }

}  // namespace
}  // namespace cppcuda::ops::grid_sample3d
