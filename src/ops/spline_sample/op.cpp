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
Tensor as_volume(const Tensor& t, size_t axes) { return t.defined() && axes == 2 ? t.unsqueeze(-4) : t; }

// What the functions of interpolation/dispatch.h call a lookup. Tables are images or volumes here.
struct Spline {
  at::IntArrayRef size;  // [D, H, W] or [H, W]
  int64_t order;
  Border border;

  template <class P>
  Grid<P> grid(const interpolation::Arguments& a) const {
    Grid<P> result{.points = kit::view_of<const P, 3>(a.points),
                   .direction = kit::view_of<const P, 3>(a.directions),
                   .size = {1, 1, 1},
                   .first_axis = static_cast<int>(3 - size.size()),
                   .order = static_cast<int>(order),
                   .border = border,
                   .derivative = a.order};
    std::copy(size.begin(), size.end(), result.size + 3 - size.size());
    return result;
  }

  // The number of coefficients that a point depends on.
  int64_t corners() const { return (order + 1) * (order + 1) * (size.size() == 3 ? order + 1 : 1); }
};

template <class TheOp>
Spline spline_of(const kit::Args<TheOp>& args, at::IntArrayRef size) {
  return {size, args.template get<"order">(),
          interpolation::find_border(TheOp::base_name(), args.template get<"border">())};
}

template <class TheOp>
Spline spline_of(const kit::Args<TheOp>& args) {
  return spline_of(args, C10_AS_INTARRAYREF_SLOW(args.template get<"size">()));
}

template <int K>
void gather_of_order(const Spline& spline, const interpolation::Arguments& a) {
  const Tensor& like = a.out.defined() ? a.out : a.grad;
  const Tensor input = as_volume(a.table, spline.size.size()), second = as_volume(a.second, spline.size.size());
  const interpolation::Sums grad_points(a.grad_points);
  kit::visit_dtypes(like.scalar_type(), a.points.scalar_type(),
                    [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
                      kit::run(a.points.device(),
                               GatherLoop<T, P, K>{.grid = spline.grid<P>(a),
                                                   .input = kit::view_of<const T, 5>(input),
                                                   .second = kit::view_of<const T, 5>(second),
                                                   .grad = kit::view_of<const T, 3>(a.grad),
                                                   .out = kit::view_of<T, 3>(a.out),
                                                   .grad_points = kit::view_of<kit::opmath<T>, 3>(grad_points.get()),
                                                   .features = like.size(-1),
                                                   .count = a.points.numel() / a.points.size(-1),
                                                   .work = spline.corners() * like.size(-1)});
                    });
  grad_points.finish();
}

void gather(const Spline& spline, const interpolation::Arguments& a) {
  const auto run = a.directions.defined()    ? gather_of_order<2>
                   : a.grad_points.defined() ? gather_of_order<1>
                                             : gather_of_order<0>;
  run(spline, a);
}

void scatter(const Spline& spline, const interpolation::Arguments& a) {
  const Tensor &points = a.points, &grad = a.grad;
  const interpolation::Sums table(as_volume(a.table, spline.size.size()));
  table.zero();
  const auto run = [&]<class T, class P>(std::type_identity<T>, std::type_identity<P>) {
    using A = kit::opmath<T>;
    const auto grid = spline.grid<P>(a);
    const int64_t batches = interpolation::batches(points), count = points.size(-2), features = grad.size(-1);
    const int64_t corners = spline.corners();
    if (points.is_cuda() && at::globalContext().deterministicAlgorithms()) {
      const interpolation::SumParams<T> sums{.batches = batches,
                                             .points = count,
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
    const int64_t shares = std::clamp<int64_t>(at::get_num_threads() / batches, 1, spline.size[0]);
    kit::run(points.device(), ScatterLoop<T, P>{.grid = grid,
                                                .grad = kit::view_of<const T, 3>(grad),
                                                .table = kit::view_of<A, 5>(table.get()),
                                                .features = features,
                                                .shares = shares,
                                                .count = batches * (points.is_cuda() ? count : shares),
                                                .work = corners * features * (points.is_cuda() ? 1 : count)});
  };
  kit::visit_dtypes(grad.scalar_type(), points.scalar_type(), run);
  table.finish();
}

template <class F>
void forward(const kit::Args<typename F::Forward>& args, const kit::Outputs<typename F::Forward>& out) {
  const Tensor &input = args["input"], &points = args["points"];
  const int64_t axes = points.size(-1);
  const auto size = input.sizes().slice(input.dim() - 1 - axes, axes);
  interpolation::run_forward(spline_of(args, size), input, points, out["output"]);
}

template <class F>
void backward(const kit::Args<typename F::Backward>& args, const kit::Outputs<typename F::Backward>& out) {
  interpolation::run_backward(spline_of(args), args["grad"], args["input"], args["points"], out["grad(input)"],
                              out["grad(points)"]);
}

template <class F>
void double_backward(const kit::Args<typename F::DoubleBackward>& args,
                     const kit::Outputs<typename F::DoubleBackward>& out) {
  const auto order =
      interpolation::order_of(F::DoubleBackward::base_name(), args.template get<"derivative">(), args["points"]);
  interpolation::run_double_backward(spline_of(args), args["grad"], args["input"], args["points"],
                                     args["grad_grad_input"], args["grad_grad_points"], order, out["grad(grad)"],
                                     out["grad(input)"], out["grad(points)"]);
}

template <class F>
void splat(const kit::Args<typename F::Splat>& args, const kit::Outputs<typename F::Splat>& out) {
  interpolation::run_backward(spline_of(args), args["values"], {}, args["points"], out["output"], {});
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
