#include "ops/spline_prefilter/op.h"

#include <cppcuda/ops/spline_prefilter2d.h>
#include <cppcuda/ops/spline_prefilter3d.h>
#include <torch/library.h>

#include <cmath>

#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/call.h"
#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "interpolation/dispatch.h"
#include "interpolation/spline_arguments.h"
#include "ops/spline_prefilter/loops.h"

namespace cppcuda {
namespace ops::spline_prefilter {
namespace {

template <class TheOp>
auto outputs(const kit::Args<TheOp>& args) {
  const char* const op = TheOp::base_name();
  auto result = kit::outputs_of(args);
  interpolation::check_order(op, args.template get<"order">());
  const Border border = interpolation::find_border(op, args.template get<"border">());
  TORCH_CHECK(
      border != Border::nearest && border != Border::grid_constant, op, ": the border '", args.template get<"border">(),
      "' has no exact filter. Pad the image by 12 values on each side, filter it with 'mirror', and add 12 to the "
      "points, as scipy.ndimage.map_coordinates does");
  const auto sizes = args[tensor<TheOp>].sym_sizes();
  interpolation::check_size(op, tensor<TheOp>, sizes.slice(sizes.size() - 1 - axes<TheOp>, axes<TheOp>), sizes);
  return result;
}

// The poles of the filters, from M. Unser, "Splines: a perfect fit for signal and image processing", 1999, table 1.
template <class A>
void set_poles(int64_t order, FilterLoop<A>& loop) {
  const auto set = [&](std::initializer_list<double> poles) {
    double gain = 1;
    loop.poles = 0;
    for (const double z : poles) {
      loop.pole[loop.poles++] = static_cast<A>(z);
      gain *= (1 - z) * (1 - 1 / z);
    }
    loop.gain = static_cast<A>(gain);
  };
  if (order == 2) set({std::sqrt(8.0) - 3});
  if (order == 3) set({std::sqrt(3.0) - 2});
  if (order == 4) set({-0.36134122590022017709, -0.01372542929733912136});
  if (order == 5) set({-0.43057534709997379185, -0.04309628820326465382});
}

template <class TheOp>
void filter(const kit::Args<TheOp>& args, const kit::Outputs<TheOp>& out) {
  const Tensor &input = args[tensor<TheOp>], &output = out[size_t{0}];
  if (output.numel() == 0) return;
  kit::visit_dtype(output.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const interpolation::Sums sums(output);
    const Tensor volume = axes<TheOp> == 2 ? input.unsqueeze(-4) : input, &values = sums.get();
    const int64_t row = output.size(-2) * output.size(-1);
    kit::run(output.device(),
             CopyLoop<T>{kit::view_of<const T, 5>(volume), values.mutable_data_ptr<A>(), output.numel() / row, row});
    const int64_t order = args.template get<"order">();
    for (int64_t d = 0; order > 1 && d < axes<TheOp>; ++d) {
      const int64_t dim = output.dim() - 2 - d, length = output.size(dim);
      if (length == 1) continue;
      FilterLoop<A> loop;
      loop.data = values.mutable_data_ptr<A>();
      loop.lines = values.numel() / length;
      loop.length = length;
      loop.step = values.stride(dim);
      loop.together = output.is_cuda() ? 1 : FilterLoop<A>::most;
      loop.border = interpolation::find_border(TheOp::base_name(), args.template get<"border">());
      loop.is_adjoint = is_backward<TheOp>;
      set_poles(order, loop);
      loop.count = (loop.lines + loop.together - 1) / loop.together;
      loop.work = 4 * length * loop.together * loop.poles;
      kit::run(output.device(), loop);
    }
    sums.finish();
  });
}

// Calls an operator with the attributes of another one.
template <class TheOp, class Formula>
Tensor call(const Tensor& input, const kit::Saved<Formula>& saved) {
  kit::Call<TheOp> all(saved);
  all.tensors[tensor<TheOp>] = input;
  return all.run()[size_t{0}];
}

// The filter and its adjoint are linear.
template <class Prefilter>
struct Formula : kit::GradientsBy<Prefilter, Backward<Prefilter>> {
  using Op = Prefilter;

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<Formula>& saved) {
    kit::Outputs<Op> result;
    result["output"] = call<Op>(tangents["input"], saved);
    return result;
  }
};

template <class Prefilter>
struct BackwardFormula {
  using Op = Backward<Prefilter>;
  static constexpr auto reads = kit::reads<Op>({{"grad", {}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>&) {
    kit::Inputs<Op> result;
    result["grad"] = call<Prefilter>(grads[size_t{0}], saved);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    kit::Outputs<Op> result;
    result[size_t{0}] = call<Op>(tangents["grad"], saved);
    return result;
  }
};

template <class Prefilter>
void define(torch::Library& m) {
  using Adjoint = Backward<Prefilter>;
  kit::define<Prefilter, outputs<Prefilter>>(m)
      .template implement<filter<Prefilter>>()
      .template differentiate<Formula<Prefilter>>();
  kit::define<Adjoint, outputs<Adjoint>>(m)
      .template implement<filter<Adjoint>>()
      .template differentiate<BackwardFormula<Prefilter>>();
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  define<Prefilter2d>(m);
  define<Prefilter3d>(m);
}

}  // namespace
}  // namespace ops::spline_prefilter

Tensor spline_prefilter2d(const Tensor& input, int64_t order, std::string_view border) {
  return kit::call<ops::spline_prefilter::Prefilter2d>(input, order, border);
}

Tensor spline_prefilter3d(const Tensor& input, int64_t order, std::string_view border) {
  return kit::call<ops::spline_prefilter::Prefilter3d>(input, order, border);
}

}  // namespace cppcuda
