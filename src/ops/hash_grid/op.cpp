#include "ops/hash_grid/op.h"

#include <cppcuda/ops/hash_grid.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "ops/hash_grid/shape.h"

namespace cppcuda {

Tensor hash_grid(const Tensor& params, const Tensor& points, const HashGridConfig& config) {
  kit::check_defined("hash_grid", "params", params);
  kit::check_defined("hash_grid", "points", points);
  return ops::hash_grid::Forward::call(params, points, config.n_levels, config.n_features_per_level,
                                       config.log2_hashmap_size, config.base_resolution, config.per_level_scale,
                                       config.interpolation);
}

int64_t hash_grid_parameters(int64_t n_input_dims, const HashGridConfig& config) {
  const ops::hash_grid::Config checked{config.n_levels, config.n_features_per_level, config.log2_hashmap_size,
                                       config.base_resolution, config.per_level_scale};
  ops::hash_grid::check_config("hash_grid_parameters", checked);
  TORCH_CHECK(n_input_dims >= 2 && n_input_dims <= 4, "hash_grid_parameters: n_input_dims must be 2, 3 or 4, got ",
              n_input_dims);
  return ops::hash_grid::count_parameters(checked, n_input_dims);
}

namespace ops::hash_grid {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward, forward_shape>(m);
  kit::define<Backward, backward_shape>(m);
  kit::define<DoubleBackward, double_backward_shape>(m);
  // For Python, which has to know the size of the parameters before there are any, and exports the scales.
  m.def("_hash_grid_scales(int n_levels, int base_resolution, float per_level_scale) -> float[]",
        [](int64_t n_levels, int64_t base_resolution, double per_level_scale) {
          const Config config{n_levels, 1, 1, base_resolution, per_level_scale};
          std::vector<double> scales;
          for (int64_t l = 0; l < n_levels; ++l) scales.push_back(level_scale(config, l));
          return scales;
        });
  m.def(
      "_hash_grid_parameters(int n_input_dims, int n_levels, int n_features_per_level, int log2_hashmap_size, "
      "int base_resolution, float per_level_scale) -> int",
      [](int64_t n_input_dims, int64_t n_levels, int64_t n_features_per_level, int64_t log2_hashmap_size,
         int64_t base_resolution, double per_level_scale) {
        return hash_grid_parameters(n_input_dims, {.n_levels = n_levels,
                                                   .n_features_per_level = n_features_per_level,
                                                   .log2_hashmap_size = log2_hashmap_size,
                                                   .base_resolution = base_resolution,
                                                   .per_level_scale = per_level_scale});
      });
}

}  // namespace ops::hash_grid
}  // namespace cppcuda
