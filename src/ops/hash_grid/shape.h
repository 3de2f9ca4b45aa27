#pragma once

#include "ops/hash_grid/layout.h"

namespace cppcuda::ops::hash_grid {

// The outputs that follow from the declaration, after a check of what it does not say.
template <class TheOp>
auto checked_outputs(const Config& config, std::string_view interpolation, const Tensor& points,
                     std::string_view argument, const auto& size, const auto&... args) {
  check_config(TheOp::base_name(), config);
  is_smooth(TheOp::base_name(), interpolation);
  auto outputs = kit::Shape<TheOp>::outputs(args...);
  check_sizes(TheOp::base_name(), config, points, argument, size());
  return outputs;
}

inline kit::Output forward_shape(const Tensor& params, const Tensor& points, int64_t n_levels,
                                 int64_t n_features_per_level, int64_t log2_hashmap_size, int64_t base_resolution,
                                 double per_level_scale, std::string_view interpolation) {
  return checked_outputs<Forward>(
      {n_levels, n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale}, interpolation, points,
      "params", [&] { return params.sym_size(-1); }, params, points, n_levels, n_features_per_level, log2_hashmap_size,
      base_resolution, per_level_scale, interpolation);
}

inline auto backward_shape(const Tensor& grad, const OptionalTensor& params, const Tensor& points,
                           c10::SymIntArrayRef size, int64_t n_levels, int64_t n_features_per_level,
                           int64_t log2_hashmap_size, int64_t base_resolution, double per_level_scale,
                           std::string_view interpolation, c10::List<bool> output_mask) {
  return checked_outputs<Backward>(
      {n_levels, n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale}, interpolation, points,
      "size", [&] { return size[0]; }, grad, params, points, size, n_levels, n_features_per_level, log2_hashmap_size,
      base_resolution, per_level_scale, interpolation, output_mask);
}

inline auto double_backward_shape(const Tensor& grad, const OptionalTensor& params, const Tensor& points,
                                  const OptionalTensor& grad_grad_params, const Tensor& grad_grad_points,
                                  c10::SymIntArrayRef size, int64_t n_levels, int64_t n_features_per_level,
                                  int64_t log2_hashmap_size, int64_t base_resolution, double per_level_scale,
                                  std::string_view interpolation, c10::List<bool> output_mask, at::IntArrayRef order) {
  return checked_outputs<DoubleBackward>(
      {n_levels, n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale}, interpolation, points,
      "size", [&] { return size[0]; }, grad, params, points, grad_grad_params, grad_grad_points, size, n_levels,
      n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale, interpolation, output_mask, order);
}

}  // namespace cppcuda::ops::hash_grid
