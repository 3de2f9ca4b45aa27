#include "ops/hash_grid/op.h"

#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "interpolation/dispatch.h"
#include "interpolation/formulas.h"
#include "ops/hash_grid/layout.h"

namespace cppcuda {

Tensor hash_grid(const Tensor& params, const Tensor& points, const HashGridConfig& config) {
  return kit::call<ops::hash_grid::Forward>(params, points, config);
}

int64_t hash_grid_parameters(int64_t n_input_dims, const HashGridConfig& config) {
  ops::hash_grid::check_config("hash_grid_parameters", config);
  TORCH_CHECK(n_input_dims >= 2 && n_input_dims <= 4, "hash_grid_parameters: n_input_dims must be 2, 3 or 4, got ",
              n_input_dims);
  return ops::hash_grid::count_parameters(config, n_input_dims);
}

namespace ops::hash_grid {
namespace {

// The outputs that follow from the declaration, after a check of what it does not say.
template <class TheOp>
auto outputs(const kit::Args<TheOp>& args) {
  const char* const op = TheOp::base_name();
  const auto config = args.config();
  check_config(op, config);
  auto result = kit::outputs_of(args);
  if constexpr (std::is_same_v<TheOp, Forward>) {
    check_sizes(op, config, args["points"], "params", args["params"].sym_size(-1));
  } else {
    check_sizes(op, config, args["points"], "size", args.template get<"size">()[0]);
  }
  return result;
}

// ---- kernels

// Calls f(lookup) for points with this number of coordinates.
template <class F>
void with_lookup(int64_t axes, const HashGridConfig& config, F f) {
  const auto call = [&]<int Axes>(std::integral_constant<int, Axes>) {
    Lookup<Axes> lookup;
    lookup.count = static_cast<int>(config.n_levels);
    lookup.is_smooth = config.interpolation == "Smoothstep";
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
Tensor as_table(const Tensor& params, const HashGridConfig& config) {
  return params.defined() ? params.unflatten(-1, {-1, config.n_features_per_level}) : params;
}

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  const Tensor& points = args["points"];
  const auto config = args.config();
  with_lookup(points.size(-1), config, [&](const auto& lookup) {
    interpolation::run_forward(lookup, as_table(args["params"], config), points, out["output"]);
  });
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  const Tensor& points = args["points"];
  const auto config = args.config();
  with_lookup(points.size(-1), config, [&](const auto& lookup) {
    interpolation::run_backward(lookup, args["grad"], as_table(args["params"], config), points,
                                as_table(out["grad(params)"], config), out["grad(points)"]);
  });
}

void double_backward(const kit::Args<DoubleBackward>& args, const kit::Outputs<DoubleBackward>& out) {
  const Tensor& points = args["points"];
  const auto config = args.config();
  const auto order = interpolation::order_of(DoubleBackward::base_name(), args.get<"derivative">(), points);
  with_lookup(points.size(-1), config, [&](const auto& lookup) {
    interpolation::run_double_backward(lookup, args["grad"], as_table(args["params"], config), points,
                                       as_table(args["grad_grad_params"], config), args["grad_grad_points"], order,
                                       out["grad(grad)"], as_table(out["grad(params)"], config), out["grad(points)"]);
  });
}

// ---- derivatives

// The corners of points at each level are rows of the level's table.
struct Grid {
  using Forward = hash_grid::Forward;
  using Backward = hash_grid::Backward;
  using DoubleBackward = hash_grid::DoubleBackward;
  static constexpr const char *features = "params", *grad_features = "grad(params)", *second = "grad_grad_params";

  static c10::SymInt columns(const kit::Call<DoubleBackward>& call) {
    return call.attribute<"n_levels">() * call.attribute<"n_features_per_level">();
  }
};

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward, outputs<Forward>>(m).implement<forward>().differentiate<interpolation::ForwardFormula<Grid>>();
  kit::define<Backward, outputs<Backward>>(m)
      .implement<backward>()
      .differentiate<interpolation::BackwardFormula<Grid>>();
  kit::define<DoubleBackward, outputs<DoubleBackward>>(m)
      .implement<double_backward>()
      .differentiate<interpolation::DoubleBackwardFormula<Grid>>();
  // For Python, which has to know the size of the parameters before there are any, and exports the scales.
  m.def("_hash_grid_scales(int n_levels, int base_resolution, float per_level_scale) -> float[]",
        [](int64_t n_levels, int64_t base_resolution, double per_level_scale) {
          const HashGridConfig config{
              .n_levels = n_levels, .base_resolution = base_resolution, .per_level_scale = per_level_scale};
          std::vector<double> scales;
          for (int64_t l = 0; l < n_levels; ++l) scales.push_back(level_scale(config, l));
          return scales;
        });
  m.def(
      "_hash_grid_parameters(int n_input_dims, int n_levels, int n_features_per_level, int log2_hashmap_size, "
      "int base_resolution, float per_level_scale) -> int",
      [](int64_t n_input_dims, int64_t n_levels, int64_t n_features_per_level, int64_t log2_hashmap_size,
         int64_t base_resolution, double per_level_scale) {
        return hash_grid_parameters(
            n_input_dims, {n_levels, n_features_per_level, log2_hashmap_size, base_resolution, per_level_scale});
      });
}

}  // namespace
}  // namespace ops::hash_grid
}  // namespace cppcuda
