#include "ops/grid_sample3d/op.h"

#include <cppcuda/ops/grid_sample3d.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "interpolation/dispatch.h"
#include "interpolation/formulas.h"
#include "ops/grid_sample3d/lookup.h"

namespace cppcuda {

Tensor grid_sample3d(const Tensor& input, const Tensor& points, std::string_view padding_mode, bool align_corners) {
  return kit::call<ops::grid_sample3d::Forward>(input, points, padding_mode, align_corners);
}

namespace ops::grid_sample3d {
namespace {

Padding find_padding(const char* op, std::string_view name) {
  if (name == "zeros") return Padding::zeros;
  if (name == "border") return Padding::border;
  TORCH_CHECK(name == "reflection", op, ": padding_mode must be 'zeros', 'border' or 'reflection', got '", name, "'");
  return Padding::reflection;
}

// The outputs that follow from the declaration, after a check of what it does not say.
template <class TheOp>
auto outputs(const kit::Args<TheOp>& args) {
  const char* const op = TheOp::base_name();
  auto result = kit::outputs_of(args);
  find_padding(op, args.template get<"padding_mode">());
  const auto check_size = [op](const char* argument, c10::SymIntArrayRef size, c10::SymIntArrayRef shown) {
    for (const c10::SymInt& s : size) {
      TORCH_SYM_CHECK(s.sym_ge(1), op, ": ", argument, " must have D, H and W of at least 1, got ", shown);
      TORCH_SYM_CHECK(s.sym_le(Lookup::max_size), op, ": ", argument, " must have D, H and W of at most ",
                      Lookup::max_size, ", got ", shown);
    }
  };
  if constexpr (std::is_same_v<TheOp, Forward>) {
    const auto sizes = args["input"].sym_sizes();
    check_size("input", sizes.slice(sizes.size() - 4, 3), sizes);
  } else {
    const auto& size = args.template get<"size">();
    check_size("size", size, size);
  }
  return result;
}

// ---- kernels

// size is [D, H, W].
template <class TheOp, class Size>
Lookup lookup(const kit::Args<TheOp>& args, const Size& size) {
  return {.size = {size[2], size[1], size[0]},
          .padding = find_padding(TheOp::base_name(), args.template get<"padding_mode">()),
          .align_corners = args.template get<"align_corners">()};
}

// [B?, D, H, W, F] as [B?, V, F]: a view if the strides permit it, as those of dense memory formats do.
Tensor as_table(const Tensor& volume) { return volume.defined() ? volume.flatten(-4, -2) : volume; }

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  const Tensor& input = args["input"];
  interpolation::run_forward(lookup(args, input.sizes().slice(input.dim() - 4, 3)), as_table(input), args["points"],
                             out["output"]);
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  interpolation::run_backward(lookup(args, C10_AS_INTARRAYREF_SLOW(args.get<"size">())), args["grad"],
                              as_table(args["input"]), args["points"], as_table(out["grad(input)"]),
                              out["grad(points)"]);
}

void double_backward(const kit::Args<DoubleBackward>& args, const kit::Outputs<DoubleBackward>& out) {
  interpolation::run_double_backward(
      lookup(args, C10_AS_INTARRAYREF_SLOW(args.get<"size">())), args["grad"], as_table(args["input"]), args["points"],
      as_table(args["grad_grad_input"]), args["grad_grad_points"],
      interpolation::order_of(DoubleBackward::base_name(), args.get<"derivative">(), args["points"]), out["grad(grad)"],
      as_table(out["grad(input)"]), out["grad(points)"]);
}

// ---- derivatives

// The corners of points are voxels.
struct Volume {
  using Forward = grid_sample3d::Forward;
  using Backward = grid_sample3d::Backward;
  using DoubleBackward = grid_sample3d::DoubleBackward;
  static constexpr const char *features = "input", *grad_features = "grad(input)", *second = "grad_grad_input";
};

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward, outputs<Forward>>(m).implement<forward>().differentiate<interpolation::ForwardFormula<Volume>>();
  kit::define<Backward, outputs<Backward>>(m)
      .implement<backward>()
      .differentiate<interpolation::BackwardFormula<Volume>>();
  kit::define<DoubleBackward, outputs<DoubleBackward>>(m)
      .implement<double_backward>()
      .differentiate<interpolation::DoubleBackwardFormula<Volume>>();
}

}  // namespace
}  // namespace ops::grid_sample3d
}  // namespace cppcuda
