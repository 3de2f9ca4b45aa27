#include "ops/trilinear_indexed/op.h"

#include <cppcuda/ops/trilinear_indexed.h>
#include <cppcuda/ops/trilinear_indexed_with_grad.h>
#include <torch/library.h>

#include <vector>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "interpolation/dispatch.h"
#include "interpolation/formulas.h"
#include "ops/trilinear_indexed/lookup.h"

namespace cppcuda {

Tensor trilinear_indexed(const Tensor& table, const Tensor& corners, const Tensor& points) {
  return kit::call<ops::trilinear_indexed::Forward>(table, corners, points);
}

std::tuple<Tensor, Tensor> trilinear_indexed_with_grad(const Tensor& table, const Tensor& corners,
                                                       const Tensor& points) {
  return kit::call<ops::trilinear_indexed::WithGrad>(table, corners, points);
}

namespace ops::trilinear_indexed {
namespace {

// ---- kernels

// Calls f(lookup) for a table of `rows` rows, and throws if a corner is out of range.
template <class TheOp, class F>
void with_lookup(const kit::Args<TheOp>& args, int64_t rows, F f) {
  const Tensor& corners = args["corners"];
  int64_t offender = Lookup<int64_t>::none;
  const auto call = [&]<class I>(std::type_identity<I>) {
    f(Lookup<I>{
        .corners = kit::rows_of<I>(corners, 1), .points = corners.size(-2), .rows = rows, .offender = &offender});
  };
  corners.scalar_type() == at::kInt ? call(std::type_identity<int32_t>()) : call(std::type_identity<int64_t>());
  if (offender == Lookup<int64_t>::none) return;
  at::DimVector at(corners.dim());
  for (int64_t d = corners.dim(), rest = offender; d-- > 0; rest /= corners.size(d)) at[d] = rest % corners.size(d);
  Tensor index = corners;
  for (const int64_t i : at) index = index.select(0, i);
  TORCH_CHECK_INDEX(false, TheOp::base_name(), ": corners must be in [-1, V) with V = ", rows, ", got ",
                    index.item<int64_t>(), " at ", at::IntArrayRef(at));
}

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  const Tensor& table = args["table"];
  with_lookup(args, table.size(-2),
              [&](const auto& lookup) { interpolation::run_forward(lookup, table, args["points"], out["output"]); });
}

void with_grad(const kit::Args<WithGrad>& args, const kit::Outputs<WithGrad>& out) {
  const Tensor& table = args["table"];
  with_lookup(args, table.size(-2), [&](const auto& lookup) {
    if (out["value"].numel() == 0) return;
    interpolation::gather(
        lookup, {.points = args["points"], .table = table, .out = out["value"], .out_slopes = out["gradient"]});
  });
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  with_lookup(args, args.get<"size">()[0].expect_int(), [&](const auto& lookup) {
    interpolation::run_backward(lookup, args["grad"], args["table"], args["points"], out["grad(table)"],
                                out["grad(points)"]);
  });
}

void double_backward(const kit::Args<DoubleBackward>& args, const kit::Outputs<DoubleBackward>& out) {
  const auto order = interpolation::order_of(DoubleBackward::base_name(), args.get<"derivative">(), args["points"]);
  with_lookup(args, args.get<"size">()[0].expect_int(), [&](const auto& lookup) {
    interpolation::run_double_backward(lookup, args["grad"], args["table"], args["points"], args["grad_grad_table"],
                                       args["grad_grad_points"], order, out["grad(grad)"], out["grad(table)"],
                                       out["grad(points)"]);
  });
}

// ---- derivatives

// The corners of points are rows of a table that they share.
struct Table {
  using Forward = trilinear_indexed::Forward;
  using Backward = trilinear_indexed::Backward;
  using DoubleBackward = trilinear_indexed::DoubleBackward;
  static constexpr const char *features = "table", *grad_features = "grad(table)", *second = "grad_grad_table";
};

// Each component of the gradient is a derivative in the direction of an axis, which DoubleBackward computes.
struct WithGradFormula : kit::SizeFor<WithGrad, Backward> {
  using Op = WithGrad;
  static constexpr auto reads = kit::reads<Op>({{"table", {"points"}}, {"points", {"table", "points"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<WithGradFormula>& saved,
                             const kit::Need<Op>& need) {
    const interpolation::Operators<Table> table(saved);
    const bool of_table = need["table"], of_points = need["points"];
    const Tensor &x = saved["table"], &p = saved["points"];
    kit::Inputs<Op> result;
    if (grads["value"].defined()) {
      const auto by_value = table.backward(grads["value"], x, p, of_table, of_points);
      result["table"] = by_value["grad(table)"], result["points"] = by_value["grad(points)"];
    }
    const Tensor& gradient = grads["gradient"];
    if (!gradient.defined()) return result;
    const auto add = [&](const Tensor& grad, const Tensor& direction) {
      const auto along = table.double_backward(grad, x, p, {}, direction, {false, of_table, of_points});
      if (of_table) kit::accumulate(result["table"], along["grad(table)"]);
      if (of_points) kit::accumulate(result["points"], along["grad(points)"]);
    };
    if (gradient.sym_size(-2) == 1) {  // of one feature, the sum over the axes is a derivative in one direction
      add(at::ones_like(gradient.select(-1, 0)), gradient.select(-2, 0).to(p.scalar_type()));
    } else {
      for (int64_t d = 0; d < 3; ++d) add(gradient.select(-1, d), interpolation::direction(p, d));
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<WithGradFormula>& saved) {
    const interpolation::Operators<Table> table(saved);
    const auto [x, p] = saved.get<"table", "points">();
    const auto [tx, tp] = tangents.get<"table", "points">();
    kit::Outputs<Op> result;
    if (tx.defined()) {
      result = kit::to_array(WithGrad::call(tx, saved["corners"], p));
    }
    if (!tp.defined()) return result;
    const auto along = [&](const interpolation::Orders& order) {
      return table.double_backward({}, x, p, {}, tp, {true, false, false}, order)["grad(grad)"];
    };
    kit::accumulate(result["value"], along({}));
    std::vector<Tensor> by_axis;
    for (int64_t d = 0; d < 3; ++d) by_axis.push_back(along(interpolation::raised({}, p, d)));
    kit::accumulate(result["gradient"], at::stack(by_axis, -1));
    return result;
  }
};

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward>(m).implement<forward>().differentiate<interpolation::ForwardFormula<Table>>();
  kit::define<Backward>(m).implement<backward>().differentiate<interpolation::BackwardFormula<Table>>();
  kit::define<DoubleBackward>(m)
      .implement<double_backward>()
      .differentiate<interpolation::DoubleBackwardFormula<Table>>();
  kit::define<WithGrad>(m).implement<with_grad>().differentiate<WithGradFormula>();
}

}  // namespace
}  // namespace ops::trilinear_indexed
}  // namespace cppcuda
