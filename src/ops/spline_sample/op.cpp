#include "ops/spline_sample/op.h"

#include <ATen/Parallel.h>
#include <cppcuda/ops/spline_sample2d.h>
#include <cppcuda/ops/spline_sample3d.h>
#include <cppcuda/ops/spline_splat2d.h>
#include <cppcuda/ops/spline_splat3d.h>
#include <torch/library.h>

#include <algorithm>

#include "cppcuda/kit/define.h"
#include "interpolation/dispatch.h"
#include "interpolation/formulas.h"
#include "interpolation/spline_arguments.h"
#include "ops/spline_sample/loops.h"

namespace cppcuda {
namespace ops::spline_sample {
namespace {

// The outputs that follow from the declaration, after a check of what it does not say.
template <class TheOp>
auto outputs(const kit::Args<TheOp>& args) {
  const char* const op = TheOp::base_name();
  auto result = kit::outputs_of(args);
  interpolation::check_order(op, args.template get<"order">());
  interpolation::find_border(op, args.template get<"border">());
  if constexpr (TheOp::declaration.find_argument("size") < TheOp::declaration.arguments.size()) {
    const auto& size = args.template get<"size">();
    interpolation::check_size(op, "size", size, size);
  } else {
    const auto sizes = args["input"].sym_sizes();
    const size_t axes = static_cast<size_t>(interpolation::axes_of(args["points"]));
    interpolation::check_size(op, "input", sizes.slice(sizes.size() - 1 - axes, axes), sizes);
  }
  return result;
}

// ---- kernels

// [B?, D?, H, W, F] as [B?, D, H, W, F].
Tensor as_volume(const Tensor& t, int64_t axes) { return t.defined() && axes == 2 ? t.unsqueeze(-4) : t; }

template <class P, class TheOp>
Grid<P> grid_of(const kit::Args<TheOp>& args, at::IntArrayRef size, const Tensor& direction,
                interpolation::Order derivative) {
  const int64_t axes = static_cast<int64_t>(size.size());
  Grid<P> grid{.points = kit::view_of<const P, 3>(args["points"]),
               .direction = kit::view_of<const P, 3>(direction),
               .size = {1, 1, 1},
               .first_axis = static_cast<int>(3 - axes),
               .order = static_cast<int>(args.template get<"order">()),
               .border = interpolation::find_border(TheOp::base_name(), args.template get<"border">()),
               .derivative = derivative};
  std::copy(size.begin(), size.end(), grid.size + 3 - axes);
  return grid;
}

struct Call {
  at::IntArrayRef size;  // [D, H, W] or [H, W]
  Tensor direction = {}, input = {}, second = {}, grad = {}, out = {}, grad_points = {};
  interpolation::Order derivative = {};

  int64_t axes() const { return static_cast<int64_t>(size.size()); }
};

template <int K, class TheOp>
void gather(const kit::Args<TheOp>& args, const Call& call) {
  const Tensor& points = args["points"];
  const Tensor& like = call.input.defined() ? call.input : call.second.defined() ? call.second : call.grad;
  const Tensor input = as_volume(call.input, call.axes()), second = as_volume(call.second, call.axes());
  const interpolation::Sums grad_points(call.grad_points);
  kit::visit_dtypes(
      like.scalar_type(), points.scalar_type(), [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
        const auto grid = grid_of<P>(args, call.size, call.direction, call.derivative);
        const int64_t features = like.size(-1), taps = 1 + grid.order;
        kit::run(
            points.device(),
            GatherLoop<T, P, K>{.grid = grid,
                                .input = kit::view_of<const T, 5>(input),
                                .second = kit::view_of<const T, 5>(second),
                                .grad = kit::view_of<const T, 3>(call.grad_points.defined() ? call.grad : Tensor()),
                                .out = kit::view_of<T, 3>(call.out),
                                .grad_points = kit::view_of<kit::opmath<T>, 3>(grad_points.get()),
                                .features = features,
                                .count = points.numel() / points.size(-1),
                                .work = taps * taps * (call.axes() == 3 ? taps : 1) * features});
      });
  grad_points.finish();
}

template <class TheOp>
void scatter(const kit::Args<TheOp>& args, const Call& call) {
  const Tensor &points = args["points"], &grad = call.grad;
  const Tensor input = as_volume(call.input, call.axes());
  const interpolation::Sums table(input);
  table.zero();
  const auto run = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    using A = kit::opmath<T>;
    const auto grid = grid_of<P>(args, call.size, call.direction, call.derivative);
    const int64_t count = points.numel() / points.size(-1), batches = grid.points.sizes[0], features = grad.size(-1);
    const int64_t taps = 1 + grid.order, corners = taps * taps * (call.axes() == 3 ? taps : 1);
    if (points.is_cuda() && at::globalContext().deterministicAlgorithms()) {
      const interpolation::SumParams<T> sums{.batches = batches,
                                             .points = count / batches,
                                             .levels = 1,
                                             .features = features,
                                             .rows = batches * grid.size[0] * grid.size[1] * grid.size[2],
                                             .grad = kit::rows_of<T>(grad, 1),
                                             .table = table.data<A>()};
      return interpolation::sum_in_order(sums, corners, points.options(), [&](const auto& terms) {
        kit::run(points.device(), TermsLoop<P>{.grid = grid,
                                               .rows = sums.rows,
                                               .first = terms.first,
                                               .row = terms.row,
                                               .term = terms.term,
                                               .weight = terms.weight,
                                               .count = terms.count,
                                               .work = corners});
      });
    }
    const int64_t shares = std::clamp<int64_t>(at::get_num_threads() / batches, 1, call.size[0]);
    kit::run(points.device(), ScatterLoop<T, P>{.grid = grid,
                                                .grad = kit::view_of<const T, 3>(grad),
                                                .table = kit::view_of<A, 5>(table.get()),
                                                .features = features,
                                                .shares = shares,
                                                .count = points.is_cuda() ? count : batches * shares,
                                                .work = corners * features * (points.is_cuda() ? 1 : count / batches)});
  };
  kit::visit_dtypes(grad.scalar_type(), points.scalar_type(), run);
  table.finish();
}

template <class F>
void forward(const kit::Args<typename F::Forward>& args, const kit::Outputs<typename F::Forward>& out) {
  const Tensor &input = args["input"], &points = args["points"];
  if (out["output"].numel() == 0) return;
  const int64_t axes = points.size(-1);
  gather<0>(args, {.size = input.sizes().slice(input.dim() - 1 - axes, axes), .input = input, .out = out["output"]});
}

template <class F>
void backward(const kit::Args<typename F::Backward>& args, const kit::Outputs<typename F::Backward>& out) {
  const Tensor &grad = args["grad"], &grad_input = out["grad(input)"], &grad_points = out["grad(points)"];
  if (grad.numel() == 0) return interpolation::clear({grad_input, grad_points});
  const auto size = C10_AS_INTARRAYREF_SLOW(args.template get<"size">());
  if (grad_points.defined()) {
    gather<1>(args, {.size = size, .input = args["input"], .grad = grad, .grad_points = grad_points});
  }
  if (grad_input.defined()) scatter(args, {.size = size, .input = grad_input, .grad = grad});
}

template <class F>
void double_backward(const kit::Args<typename F::DoubleBackward>& args,
                     const kit::Outputs<typename F::DoubleBackward>& out) {
  const Tensor &grad = args["grad"], &grad_input = out["grad(input)"];
  if (grad.numel() == 0) return interpolation::clear({grad_input, out["grad(points)"]});
  Call call{.size = C10_AS_INTARRAYREF_SLOW(args.template get<"size">()),
            .direction = args["grad_grad_points"],
            .input = args["input"],
            .second = args["grad_grad_input"],
            .grad = grad,
            .out = out["grad(grad)"],
            .grad_points = out["grad(points)"],
            .derivative = interpolation::order_of(F::DoubleBackward::base_name(), args.template get<"derivative">(),
                                                  args["points"])};
  if (call.out.defined() || call.grad_points.defined()) gather<2>(args, call);
  if (!grad_input.defined()) return;
  call.input = grad_input;
  scatter(args, call);
}

template <class F>
void splat(const kit::Args<typename F::Splat>& args, const kit::Outputs<typename F::Splat>& out) {
  if (args["values"].numel() == 0) return interpolation::clear({out["output"]});
  scatter(
      args,
      {.size = C10_AS_INTARRAYREF_SLOW(args.template get<"size">()), .input = out["output"], .grad = args["values"]});
}

// A splat is the gradient of the coefficients, so its derivatives are those of Backward.
template <class F>
struct SplatFormula {
  using Op = typename F::Splat;
  static constexpr auto reads = kit::reads<Op>({{"values", {"points"}}, {"points", {"values", "points"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<SplatFormula>& saved,
                             const kit::Need<Op>& need) {
    const interpolation::Operators<F> table(saved);
    const Tensor &grad = grads["output"], &points = saved["points"];
    kit::Inputs<Op> result;
    if (need["values"]) result["values"] = table.forward(grad, points);
    if (need["points"]) {
      result["points"] = table.backward(saved["values"], grad, points, false, true)["grad(points)"];
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<SplatFormula>& saved) {
    const interpolation::Operators<F> table(saved);
    const Tensor& points = saved["points"];
    kit::Outputs<Op> result;
    if (tangents["values"].defined()) {
      kit::accumulate(result["output"], table.backward(tangents["values"], {}, points, true, false)["grad(input)"]);
    }
    if (tangents["points"].defined()) {
      kit::accumulate(result["output"], table.double_backward(saved["values"], {}, points, {}, tangents["points"],
                                                              {false, true, false})["grad(input)"]);
    }
    return result;
  }
};

template <class F>
void define(torch::Library& m) {
  using Forward = typename F::Forward;
  using Backward = typename F::Backward;
  using DoubleBackward = typename F::DoubleBackward;
  using Splat = typename F::Splat;
  kit::define<Forward, outputs<Forward>>(m)
      .template implement<forward<F>>()
      .template differentiate<interpolation::ForwardFormula<F>>();
  kit::define<Backward, outputs<Backward>>(m)
      .template implement<backward<F>>()
      .template differentiate<interpolation::BackwardFormula<F>>();
  kit::define<DoubleBackward, outputs<DoubleBackward>>(m)
      .template implement<double_backward<F>>()
      .template differentiate<interpolation::DoubleBackwardFormula<F>>();
  kit::define<Splat, outputs<Splat>>(m).template implement<splat<F>>().template differentiate<SplatFormula<F>>();
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  define<Image>(m);
  define<Volume>(m);
}

}  // namespace
}  // namespace ops::spline_sample

Tensor spline_sample2d(const Tensor& input, const Tensor& points, int64_t order, std::string_view border) {
  return kit::call<ops::spline_sample::Sample2d>(input, points, order, border);
}

Tensor spline_sample3d(const Tensor& input, const Tensor& points, int64_t order, std::string_view border) {
  return kit::call<ops::spline_sample::Sample3d>(input, points, order, border);
}

Tensor spline_splat2d(const Tensor& values, const Tensor& points, at::IntArrayRef size, int64_t order,
                      std::string_view border) {
  return kit::call<ops::spline_sample::Splat2d>(values, points, c10::fromIntArrayRefSlow(size), order, border);
}

Tensor spline_splat3d(const Tensor& values, const Tensor& points, at::IntArrayRef size, int64_t order,
                      std::string_view border) {
  return kit::call<ops::spline_sample::Splat3d>(values, points, c10::fromIntArrayRefSlow(size), order, border);
}

}  // namespace cppcuda
