#include "cppcuda/kit/autocast.h"

#include "cppcuda/kit/dtype.h"
#include "ops/hash_grid/op.h"

namespace cppcuda::ops::hash_grid {
namespace {

// As for trilinear: params keep their dtype, and 16-bit points become float32.
std::tuple<Tensor, Tensor, int64_t, int64_t, int64_t, int64_t, double, std::string_view> cast(
    at::ScalarType, const Tensor& params, const Tensor& points, int64_t n_levels, int64_t n_features_per_level,
    int64_t log2_hashmap_size, int64_t base_resolution, double per_level_scale, std::string_view interpolation) {
  return {params,
          kit::is_16bit(points.scalar_type()) ? points.to(at::kFloat) : points,
          n_levels,
          n_features_per_level,
          log2_hashmap_size,
          base_resolution,
          per_level_scale,
          interpolation};
}

TORCH_LIBRARY_IMPL(cppcuda, AutocastCPU, m) { m.impl(Forward::name, kit::autocast<Forward, cast, at::kCPU>()); }
TORCH_LIBRARY_IMPL(cppcuda, AutocastCUDA, m) { m.impl(Forward::name, kit::autocast<Forward, cast, at::kCUDA>()); }

}  // namespace
}  // namespace cppcuda::ops::hash_grid
