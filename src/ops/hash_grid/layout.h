#pragma once

// The sizes of the levels, and the checks of the arguments that say them.

#include <cmath>
#include <cstdint>
#include <vector>

#include "cppcuda/kit/shape.h"
#include "ops/hash_grid/lookup.h"
#include "ops/hash_grid/op.h"

namespace cppcuda::ops::hash_grid {

// In float32 and rounded after each operation, as in tiny-cuda-nn.
inline float level_scale(const HashGridConfig& config, int64_t level) {
  const float growth = std::log2(static_cast<float>(config.per_level_scale));
  volatile float product = std::exp2(static_cast<float>(level) * growth) * static_cast<float>(config.base_resolution);
  return product - 1.0F;
}

inline std::vector<Level> make_levels(const HashGridConfig& config, int64_t axes) {
  std::vector<Level> levels;
  int64_t first_row = 0;
  for (int64_t l = 0; l < config.n_levels; ++l) {
    const float scale = level_scale(config, l);
    const auto resolution = static_cast<uint32_t>(std::ceil(scale)) + 1;
    // A product of vertices above what a table may have needs no exact value.
    const int64_t max_rows = int64_t{1} << config.log2_hashmap_size;
    int64_t vertices = 1;
    for (int64_t d = 0; d < axes && vertices <= max_rows; ++d) vertices *= resolution;
    const int64_t size = std::min((vertices + 7) / 8 * 8, max_rows);
    levels.push_back({scale, resolution, static_cast<uint32_t>(size), vertices > size, first_row});
    first_row += size;
  }
  return levels;
}

// The number of parameters.
inline int64_t count_parameters(const HashGridConfig& config, int64_t axes) {
  const Level last = make_levels(config, axes).back();
  return (last.first_row + last.size) * config.n_features_per_level;
}

// Throws unless these describe a grid.
inline void check_config(const char* op, const HashGridConfig& config) {
  const auto in_range = [op](const char* name, int64_t value, int64_t least, int64_t most) {
    TORCH_CHECK(value >= least && value <= most, op, ": ", name, " must be from ", least, " to ", most, ", got ",
                value);
  };
  in_range("n_levels", config.n_levels, 1, max_levels);
  const int64_t features = config.n_features_per_level;
  TORCH_CHECK(features == 1 || features == 2 || features == 4 || features == 8, op,
              ": n_features_per_level must be 1, 2, 4 or 8, got ", features);
  in_range("log2_hashmap_size", config.log2_hashmap_size, 1, 30);
  in_range("base_resolution", config.base_resolution, 1, max_resolution);
  TORCH_CHECK(config.per_level_scale > 0 && std::isfinite(config.per_level_scale), op,
              ": per_level_scale must be positive and finite, got ", config.per_level_scale);
  for (int64_t l = 0; l < config.n_levels; ++l) {
    const float scale = level_scale(config, l);
    TORCH_CHECK(scale < static_cast<float>(max_resolution), op, ": level ", l, " must have at most ", max_resolution,
                " vertices per axis, got ", std::ceil(scale) + 1);
    TORCH_CHECK(scale > -1, op, ": level ", l, " must have at least one vertex per axis; per_level_scale is ",
                config.per_level_scale);
  }
  TORCH_CHECK(config.interpolation == "Linear" || config.interpolation == "Smoothstep", op,
              ": interpolation must be 'Linear' or 'Smoothstep', got '", config.interpolation, "'");
}

// The number of coordinates. Throws unless it is 2 to 4.
inline int64_t check_axes(const char* op, const Tensor& points) {
  const int64_t axes = points.sym_size(-1).guard_int(__FILE__, __LINE__);
  TORCH_CHECK(axes >= 2 && axes <= 4, op, ": points must have 2, 3 or 4 coordinates, got ", points.sym_sizes());
  return axes;
}

// `size` is that of the parameters.
inline void check_sizes(const char* op, const HashGridConfig& config, const Tensor& points, std::string_view argument,
                        const c10::SymInt& size) {
  const int64_t expected = count_parameters(config, check_axes(op, points));
  TORCH_SYM_CHECK(size.sym_eq(expected), op, ": ", argument, " must have ", expected, " entries for this grid, got ",
                  size);
}

}  // namespace cppcuda::ops::hash_grid
