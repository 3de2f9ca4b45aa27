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
        interpolation_(saved.template attribute<"interpolation">()) {}

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
                       const c10::List<bool>& output_mask, at::IntArrayRef order) const {
    return DoubleBackward::call(grad, params, points, grad_grad_params, grad_grad_points, size_, levels_, features_,
                                log2_hashmap_size_, base_resolution_, per_level_scale_, interpolation_, output_mask,
                                order);
  }

  c10::SymInt columns() const { return levels_ * features_; }

 private:
  std::vector<c10::SymInt> size_;
  int64_t levels_, features_, log2_hashmap_size_, base_resolution_;
  double per_level_scale_;
  std::string interpolation_;
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) { interpolation::implement_autograd<Grid>(m); }

}  // namespace
}  // namespace cppcuda::ops::hash_grid
