#include <torch/library.h>

#include <string>

#include "interpolation/formulas.h"
#include "ops/hash_grid/op.h"

namespace cppcuda::ops::hash_grid {
namespace {

// The corners of points at each level are rows of the level's table.
class Grid {
 public:
  using Forward = hash_grid::Forward;
  using Backward = hash_grid::Backward;
  using DoubleBackward = hash_grid::DoubleBackward;
  static constexpr const char *features = "params", *grad_features = "grad(params)", *second = "grad_grad_params";

  // The number of parameters, which the other operators take.
  struct Attributes {
    static constexpr auto attribute_names = kit::names("size");
    static auto attributes(const Tensor& params, const Tensor&, int64_t, int64_t, int64_t, int64_t, double,
                           std::string_view) {
      return std::make_tuple(std::vector<c10::SymInt>{params.sym_size(-1)});
    }
  };

  template <class Saved>
  explicit Grid(const Saved& saved)
      : size_(saved.template attribute<"size">()),
        levels_(saved.template attribute<"n_levels">()),
        features_(saved.template attribute<"n_features_per_level">()),
        log2_hashmap_size_(saved.template attribute<"log2_hashmap_size">()),
        base_resolution_(saved.template attribute<"base_resolution">()),
        per_level_scale_(saved.template attribute<"per_level_scale">()),
        interpolation_(saved.template attribute<"interpolation">()) {
    // Only the third derivatives need these.
    if constexpr (std::is_same_v<typename Saved::Op, DoubleBackward>) {
      const Tensor points = kit::in_opmath(saved["points"]);
      const int64_t axes = points.size(-1), corners = int64_t{1} << axes;
      const auto [rows, scale, shift] =
          Locate::call(points, corners, levels_, log2_hashmap_size_, base_resolution_, per_level_scale_);
      rows_ = by_level(rows, corners);
      scale_ = by_level(scale, axes);
      shift_ = by_level(shift, axes);
    }
  }

  Tensor forward(const Tensor& params, const Tensor& points) const {
    return Forward::call(params, points, levels_, features_, log2_hashmap_size_, base_resolution_, per_level_scale_,
                         interpolation_);
  }
  auto backward(const Tensor& grad, const OptionalTensor& params, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return Backward::call(grad, params, points, size_, levels_, features_, log2_hashmap_size_, base_resolution_,
                          per_level_scale_, interpolation_, output_mask);
  }
  auto double_backward(const Tensor& grad, const OptionalTensor& params, const Tensor& points,
                       const OptionalTensor& grad_grad_params, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask) const {
    return DoubleBackward::call(grad, params, points, grad_grad_params, grad_grad_points, size_, levels_, features_,
                                log2_hashmap_size_, base_resolution_, per_level_scale_, interpolation_, output_mask);
  }

  Tensor gather(const Tensor& params) const {
    c10::SymDimVector table(params.sym_sizes());
    table.back() = size_[0] / features_;
    table.push_back(features_);
    return interpolation::gather_rows(params.reshape_symint(table), rows_);
  }
  Tensor scatter(const Tensor& of_corners) const {
    c10::SymDimVector table{size_[0] / features_, features_};
    if (rows_.dim() == 4) table.insert(table.begin(), rows_.sym_size(0));
    return interpolation::merge_dims(interpolation::scatter_rows(of_corners, rows_, table), -2);
  }
  interpolation::Weights weights(const Tensor& points) const {
    return interpolation::weights_at(points.unsqueeze(-2), scale_, shift_, interpolation_ == "Smoothstep");
  }

  c10::SymInt levels() const { return levels_; }
  c10::SymInt columns() const { return levels_ * features_; }

 private:
  // [..., levels * columns] -> [..., levels, columns]
  Tensor by_level(const Tensor& t, int64_t columns) const {
    c10::SymDimVector sizes(t.sym_sizes());
    sizes.back() = levels_;
    sizes.push_back(columns);
    return t.reshape_symint(sizes);
  }

  std::vector<c10::SymInt> size_;
  int64_t levels_, features_, log2_hashmap_size_, base_resolution_;
  double per_level_scale_;
  std::string interpolation_;
  Tensor rows_, scale_, shift_;
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  interpolation::implement_autograd<Grid>(m);
  m.impl(Locate::name, kit::without_gradient<Locate>());
}

}  // namespace
}  // namespace cppcuda::ops::hash_grid
