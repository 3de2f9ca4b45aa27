// Converts tensors to the kernels' Params.

#include "interpolation/dispatch.h"

#include <torch/library.h>

#include <algorithm>

#include "cppcuda/kit/output.h"
#include "ops/hash_grid/op.h"
#include "ops/hash_grid/shape.h"

namespace cppcuda::ops::hash_grid {
namespace {

using interpolation::requested;

// Calls f(lookup) for points with this number of coordinates.
template <class F>
void with_lookup(int64_t axes, const Config& config, bool is_smooth, F f) {
  const auto call = [&]<int Axes>(std::integral_constant<int, Axes>) {
    Lookup<Axes> lookup;
    lookup.count = static_cast<int>(config.n_levels);
    lookup.is_smooth = is_smooth;
    const auto levels = make_levels(config, Axes);
    std::copy(levels.begin(), levels.end(), lookup.level);
    f(lookup);
  };
  switch (axes) {
    case 2:
      return call(std::integral_constant<int, 2>());
    case 3:
      return call(std::integral_constant<int, 3>());
    default:
      return call(std::integral_constant<int, 4>());
  }
}

// [B?, P] as [B?, V, F]: a view.
Tensor as_table(const Tensor& params, const Config& config) {
  return params.defined() ? params.unflatten(-1, {-1, config.n_features_per_level}) : params;
}

Tensor forward(const Tensor& params, const Tensor& points, int64_t n_levels, int64_t n_features_per_level,
               int64_t log2_hashmap_size, int64_t base_resolution, double per_level_scale,
               std::string_view interpolation) {
  Tensor out = kit::allocate(forward_shape(params, points, n_levels, n_features_per_level, log2_hashmap_size,
                                           base_resolution, per_level_scale, interpolation));
  const Config config{n_levels, n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale};
  with_lookup(points.size(-1), config, is_smooth(Forward::base_name(), interpolation),
              [&](const auto& lookup) { interpolation::run_forward(lookup, as_table(params, config), points, out); });
  return out;
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad, const OptionalTensor& params, const Tensor& points,
                                    c10::SymIntArrayRef size, int64_t n_levels, int64_t n_features_per_level,
                                    int64_t log2_hashmap_size, int64_t base_resolution, double per_level_scale,
                                    std::string_view interpolation, c10::List<bool> output_mask) {
  auto [grad_params, grad_points] =
      kit::allocate(backward_shape(grad, params, points, size, n_levels, n_features_per_level, log2_hashmap_size,
                                   base_resolution, per_level_scale, interpolation, output_mask));
  const Config config{n_levels, n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale};
  const Tensor of_table = as_table(requested(grad_params, output_mask[0]), config),
               of_points = requested(grad_points, output_mask[1]);
  with_lookup(points.size(-1), config, is_smooth(Backward::base_name(), interpolation), [&](const auto& lookup) {
    interpolation::run_backward(lookup, grad, as_table(kit::tensor_or_undefined(params), config), points, of_table,
                                of_points);
  });
  return {grad_params, grad_points};
}

std::tuple<Tensor, Tensor, Tensor> double_backward(const Tensor& grad, const OptionalTensor& params,
                                                   const Tensor& points, const OptionalTensor& grad_grad_params,
                                                   const Tensor& grad_grad_points, c10::SymIntArrayRef size,
                                                   int64_t n_levels, int64_t n_features_per_level,
                                                   int64_t log2_hashmap_size, int64_t base_resolution,
                                                   double per_level_scale, std::string_view interpolation,
                                                   c10::List<bool> output_mask, at::IntArrayRef order) {
  auto [grad_grad, grad_params, grad_points] = kit::allocate(double_backward_shape(
      grad, params, points, grad_grad_params, grad_grad_points, size, n_levels, n_features_per_level, log2_hashmap_size,
      base_resolution, per_level_scale, interpolation, output_mask, order));
  const Config config{n_levels, n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale};
  const auto by = interpolation::order_of(DoubleBackward::base_name(), order, points);
  const Tensor of_grad = requested(grad_grad, output_mask[0]),
               of_table = as_table(requested(grad_params, output_mask[1]), config),
               of_points = requested(grad_points, output_mask[2]);
  with_lookup(points.size(-1), config, is_smooth(DoubleBackward::base_name(), interpolation), [&](const auto& lookup) {
    interpolation::run_double_backward(lookup, grad, as_table(kit::tensor_or_undefined(params), config), points,
                                       as_table(kit::tensor_or_undefined(grad_grad_params), config), grad_grad_points,
                                       by, of_grad, of_table, of_points);
  });
  return {grad_grad, grad_params, grad_points};
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<Backward, backward>(m);
  kit::implement<DoubleBackward, double_backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::hash_grid
