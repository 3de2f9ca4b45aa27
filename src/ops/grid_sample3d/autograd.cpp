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
        align_corners_(saved.template attribute<"align_corners">()) {
    // Only the third derivatives need these.
    if constexpr (std::is_same_v<typename Saved::Op, DoubleBackward>) {
      std::tie(voxels_, scale_, shift_) =
          Locate::call(kit::in_opmath(saved["points"]), size_, padding_mode_, align_corners_);
    }
  }

  Tensor forward(const Tensor& input, const Tensor& points) const {
    return Forward::call(input, points, padding_mode_, align_corners_);
  }
  auto backward(const Tensor& grad, const OptionalTensor& input, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return Backward::call(grad, input, points, size_, padding_mode_, align_corners_, output_mask);
  }
  auto double_backward(const Tensor& grad, const OptionalTensor& input, const Tensor& points,
                       const OptionalTensor& grad_grad_input, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask) const {
    return DoubleBackward::call(grad, input, points, grad_grad_input, grad_grad_points, size_, padding_mode_,
                                align_corners_, output_mask);
  }

  Tensor gather(const Tensor& input) const {
    using interpolation::merge_dims;
    return interpolation::gather_rows(merge_dims(merge_dims(input, -4), -3), voxels_);
  }
  Tensor scatter(const Tensor& of_voxels) const {
    c10::SymDimVector table{size_[0] * size_[1] * size_[2], of_voxels.sym_size(-1)};
    c10::SymDimVector volume{size_[0], size_[1], size_[2], of_voxels.sym_size(-1)};
    if (voxels_.dim() == 3) {
      for (auto* sizes : {&table, &volume}) sizes->insert(sizes->begin(), voxels_.sym_size(0));
    }
    return interpolation::scatter_rows(of_voxels, voxels_, table).reshape_symint(volume);
  }
  interpolation::Weights weights(const Tensor& points) const {
    return interpolation::weights_at(points, scale_, shift_, /*smooth=*/false);
  }

 private:
  std::vector<c10::SymInt> size_;
  std::string padding_mode_;
  bool align_corners_;
  Tensor voxels_, scale_, shift_;
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  interpolation::implement_autograd<Volume>(m);
  m.impl(Locate::name, kit::without_gradient<Locate>());
}

}  // namespace
}  // namespace cppcuda::ops::grid_sample3d
