#pragma once

// The derivatives of interpolation. With the weights w_c(p) of a point's corners, their slopes d_k w_c(p) and the
// corners' features x_c (dot products are over f):
//
//   out         = sum_c w_c x_c
//   grad_x_c    = w_c grad
//   grad_points = sum_c d_k w_c (x_c . grad)
//
// All of these are linear in x and grad, and w_c is linear in each coordinate, so every derivative is the same
// expression with a slope in place of a factor. A derivative in a direction v is w_c(v) = sum_k v_k d_k w_c.
//
// Operators compute the first and second derivatives in one pass each; the third ones are composed of torch's. An
// operator's formulas are templates over a struct in its autograd.cpp that says where features are:
//
//   struct Table {
//     using Forward = ..., Backward = ..., DoubleBackward = ...;
//     // The features in the declarations, their gradient, and the gradient of that.
//     static constexpr const char *features = "table", *grad_features = "grad(table)", *second = "grad_grad_table";
//     struct Attributes {};  // attributes of Forward's formula (kit/formula.h)
//
//     // The arguments besides features and points. They are those of any of the operators.
//     template <class Saved> explicit Table(const Saved& saved);
//
//     // Calls of the operators.
//     Tensor forward(features, points) const;
//     std::tuple<Tensor, Tensor> backward(grad, features or none, points, output_mask) const;
//     std::tuple<Tensor, Tensor, Tensor> double_backward(grad, features or none, points, grad_grad_features or none,
//                                                        grad_grad_points, output_mask) const;
//
//     // [..., N, corners, F] from the features, and its transpose: the sum over all points.
//     Tensor gather(const Tensor& features) const;
//     Tensor scatter(const Tensor& of_corners) const;
//
//     Weights weights(const Tensor& points) const;
//     // Only if the table has levels: their number, and that of the columns of the output.
//     c10::SymInt levels() const;
//     c10::SymInt columns() const;
//   };

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "cppcuda/kit/autograd.h"

namespace cppcuda::interpolation {

using Directions = std::vector<Tensor>;

// Merges the dims `dim` and dim + 1, counted from the end. torch's own flatten has no batching rule for
// is_grads_batched.
inline Tensor merge_dims(const Tensor& t, int64_t dim) {
  c10::SymDimVector sizes(t.sym_sizes());
  const auto at = sizes.end() + dim;
  *at = *at * *(at + 1);
  sizes.erase(at + 1);
  return t.reshape_symint(sizes);
}

// Numbers [B?, ...] of rows in tables [B?, V, F] as those in one table [B (V + 1), F] whose additional rows are the row
// -1.
inline Tensor rows_of_all(const Tensor& rows, bool is_batched, const c10::SymInt& table_rows) {
  const Tensor numbers = rows + (rows < 0).to(at::kLong) * (table_rows + 1);
  if (!is_batched) return numbers.reshape_symint({rows.sym_numel()});
  c10::SymInt each = 1;
  for (const c10::SymInt& size : rows.sym_sizes().slice(1)) each = each * size;
  const Tensor by_batch = numbers.reshape_symint({rows.sym_size(0), each});
  const Tensor batch = at::ones_like(by_batch).cumsum(0) - 1;
  return (by_batch + batch * (table_rows + 1)).reshape_symint({rows.sym_numel()});
}

// The rows of a table [B?, V, F] with the numbers [B?, ...]: [B?, ..., F]. The row -1 is zeros.
inline Tensor gather_rows(const Tensor& table, const Tensor& rows) {
  const c10::SymInt size = table.sym_size(-2), features = table.sym_size(-1);
  const bool is_batched = table.dim() == 3;
  const c10::SymInt all_rows = is_batched ? table.sym_size(0) * (size + 1) : size + 1;
  const Tensor all = at::constant_pad_nd(table, {0, 0, 0, 1}).reshape_symint({all_rows, features});
  c10::SymDimVector sizes(rows.sym_sizes());
  sizes.push_back(features);
  return all.index_select(0, rows_of_all(rows, is_batched, size)).reshape_symint(sizes);
}

// Its transpose: a table with the sizes [B?, V, F] from values [B?, ..., F].
inline Tensor scatter_rows(const Tensor& values, const Tensor& rows, c10::SymDimVector sizes) {
  const c10::SymInt size = *(sizes.end() - 2), features = sizes.back();
  const bool is_batched = sizes.size() == 3;
  const c10::SymInt all_rows = is_batched ? sizes[0] * (size + 1) : size + 1;
  const Tensor zeros = values.new_zeros_symint({all_rows, features});
  const Tensor flat = values.reshape_symint({rows.sym_numel(), features});
  *(sizes.end() - 2) = size + 1;
  return at::index_add(zeros, 0, rows_of_all(rows, is_batched, size), flat)
      .reshape_symint(sizes)
      .narrow_symint(-2, 0, size);
}

// The factors of the weights, [..., 2] per axis, with their derivatives by the coordinates.
struct Weights {
  std::vector<std::vector<Tensor>> derivatives;  // of each axis, by order; those of a higher order are 0
  std::vector<size_t> order = std::vector<size_t>(derivatives.size());

  // The weights, [..., corners].
  Tensor product() const {
    Tensor result = factor(0);
    for (size_t d = 1; d < derivatives.size(); ++d) {
      result = merge_dims(result.unsqueeze(-1) * factor(d).unsqueeze(-2), -2);
    }
    return result;
  }

  Weights along_axis(size_t d) const {
    Weights result = *this;
    ++result.order[d];
    return result;
  }

  // Their derivative in some directions [..., axes], one after another: [..., corners].
  Tensor along(at::TensorList directions) const {
    if (directions.empty()) return product();
    Tensor sum;
    for (size_t d = 0; d < derivatives.size(); ++d) {
      if (order[d] + 1 >= derivatives[d].size()) continue;
      const Tensor along_this = kit::in_opmath(directions[0].select(-1, static_cast<int64_t>(d))).unsqueeze(-1);
      kit::accumulate(sum, along_this * along_axis(d).along(directions.slice(1)));
    }
    return sum.defined() ? sum : at::zeros_like(product());
  }

  // The slopes of these: [..., corners, axes].
  Tensor slopes_along(at::TensorList directions) const {
    std::vector<Tensor> by_axis;
    for (size_t d = 0; d < derivatives.size(); ++d) by_axis.push_back(along_axis(d).along(directions));
    return at::stack(by_axis, -1);
  }

 private:
  const Tensor& factor(size_t d) const { return derivatives[d][order[d]]; }
};

// The weights in a cell from -1 to 1 along each axis.
inline Weights unit_weights(const Tensor& points) {
  std::vector<std::vector<Tensor>> derivatives;
  for (int64_t d = 0; d < points.sym_size(-1); ++d) {
    const Tensor p = kit::in_opmath(points.select(-1, d));
    const Tensor half = at::full_like(p, 0.5);
    derivatives.push_back({at::stack({(1 - p) / 2, (1 + p) / 2}, -1), at::stack({-half, half}, -1)});
  }
  return {std::move(derivatives)};
}

// The weights of positions scale points + shift, 0 at the near and 1 at the far side of each axis. Scale and shift are
// constants; the values are those of the kernels' LocateParams.
inline Weights weights_at(const Tensor& points, const Tensor& scale, const Tensor& shift, bool smooth) {
  std::vector<std::vector<Tensor>> derivatives;
  for (int64_t d = 0; d < points.sym_size(-1); ++d) {
    const Tensor s = scale.select(-1, d), t = s * kit::in_opmath(points.select(-1, d)) + shift.select(-1, d);
    const auto both = [](const Tensor& far) { return at::stack({-far, far}, -1); };
    if (smooth) {
      const Tensor near = 1 - t;
      derivatives.push_back({at::stack({near * near * (3 - 2 * near), t * t * (3 - 2 * t)}, -1), both(6 * t * near * s),
                             both(6 * (near - t) * s * s), both(-12 * s * s * s)});
    } else {
      derivatives.push_back({at::stack({1 - t, t}, -1), both(s)});
    }
  }
  return {std::move(derivatives)};
}

// These use products and sums instead of matmul, which would run in 16 bits if functorch re-enables autocast.

// sum_c weights_c x_c: [..., C], [..., C, F] -> [..., F]
inline Tensor combine(const Tensor& weights, const Tensor& x) {
  return (weights.unsqueeze(-1) * kit::in_opmath(x)).sum(-2).to(x.scalar_type());
}

// weights_c grad: [..., C], [..., F] -> [..., C, F]
inline Tensor spread(const Tensor& weights, const Tensor& grad) {
  return (weights.unsqueeze(-1) * kit::in_opmath(grad).unsqueeze(-2)).to(grad.scalar_type());
}

// sum_c slopes_c (x_c . grad): [..., C, axes], [..., C, F], [..., F] -> [..., axes]
inline Tensor project(const Tensor& slopes, const Tensor& x, const Tensor& grad) {
  const Tensor dots = (kit::in_opmath(x) * kit::in_opmath(grad).unsqueeze(-2)).sum(-1);
  return (slopes * dots.unsqueeze(-1)).sum(-2);
}

// DoubleBackward takes grad also where it does not read it. There it need not be given here.
template <class Table>
kit::Outputs<typename Table::DoubleBackward> call_double_backward(const Table& table, const Tensor& grad,
                                                                  const Tensor& x, const Tensor& points,
                                                                  const Tensor& grad_grad_x,
                                                                  const Tensor& grad_grad_points,
                                                                  const std::array<bool, 3>& need) {
  Tensor g = grad;
  if (!g.defined()) {
    c10::SymDimVector sizes(points.sym_sizes());
    if constexpr (requires { table.columns(); }) {
      sizes.back() = table.columns();
    } else {
      sizes.back() = x.sym_size(-1);
    }
    // Contiguous features, so that the kernel takes the loop that it takes with a grad that it reads.
    g = at::zeros_symint({sizes.back()}, x.options()).expand_symint(sizes);
  }
  return kit::to_array(table.double_backward(g, kit::to_optional(x), points, kit::to_optional(grad_grad_x),
                                             grad_grad_points, kit::to_list(need)));
}

// Every gradient reads the indices.
template <class Op>
consteval auto reads(std::initializer_list<kit::GradientOf<Op>> gradients) {
  auto result = kit::reads<Op>(gradients);
  const auto& arguments = Op::declaration.arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_index) continue;
    for (auto& gradient : result) gradient.inputs |= 1U << Op::declaration.tensor_index(i);
  }
  return result;
}

template <class Table>
struct ForwardFormula : Table::Attributes {
  using Op = typename Table::Forward;
  static constexpr auto reads = interpolation::reads<Op>({
      {Table::features, {"points"}},
      {"points", {Table::features, "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const bool of_features = need[Table::features], of_points = need["points"];
    const OptionalTensor x = of_points ? OptionalTensor(saved[Table::features]) : std::nullopt;
    kit::Inputs<Op> result;
    std::tie(result[Table::features], result["points"]) =
        Table(saved).backward(grads["output"], x, saved["points"], c10::List<bool>({of_features, of_points}));
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    const Table table(saved);
    const Tensor &x = saved[Table::features], &p = saved["points"];
    const Tensor &tx = tangents[Table::features], &tp = tangents["points"];
    Tensor out;
    if (tx.defined()) kit::accumulate(out, table.forward(tx, p));
    if (tp.defined()) {
      kit::accumulate(out, call_double_backward(table, {}, x, p, {}, tp, {true, false, false})["grad(grad)"]);
    }
    return out;
  }
};

template <class Table>
struct BackwardFormula {
  using Op = typename Table::Backward;
  static constexpr auto reads = interpolation::reads<Op>({
      {"grad", {Table::features, "points"}},
      {Table::features, {"grad", "points"}},
      {"points", {"grad", Table::features, "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<BackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const Table table(saved);
    const Tensor &g = saved["grad"], &x = saved[Table::features], &p = saved["points"];
    const Tensor &grad_of_dx = grads[Table::grad_features], &grad_of_dp = grads["grad(points)"];
    kit::Inputs<Op> result;
    if (grad_of_dp.defined()) {
      const auto all = call_double_backward(table, g, x, p, grad_of_dx, grad_of_dp,
                                            {need["grad"], need[Table::features], need["points"]});
      result["grad"] = all["grad(grad)"];
      result[Table::features] = all[Table::grad_features];
      result["points"] = all["grad(points)"];
      return result;
    }
    if (!grad_of_dx.defined()) return result;
    if (need["grad"]) result["grad"] = table.forward(grad_of_dx, p);
    if (need["points"]) result["points"] = grad_points(table, g, grad_of_dx, p);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<BackwardFormula>& saved) {
    const Table table(saved);
    const Tensor &g = saved["grad"], &x = saved[Table::features], &p = saved["points"];
    const Tensor &tg = tangents["grad"], &tx = tangents[Table::features], &tp = tangents["points"];
    const bool of_features = saved.is_requested(Table::grad_features), of_points = saved.is_requested("grad(points)");
    kit::Outputs<Op> result;
    Tensor &dx = result[Table::grad_features], &dp = result["grad(points)"];
    if (tg.defined()) {
      result = kit::to_array(table.backward(tg, kit::to_optional(x), p, c10::List<bool>({of_features, of_points})));
    }
    if (tx.defined() && of_points) kit::accumulate(dp, grad_points(table, g, tx, p));
    if (tp.defined()) {
      const auto second = call_double_backward(table, g, x, p, {}, tp, {false, of_features, of_points});
      if (of_features) kit::accumulate(dx, second[Table::grad_features]);
      if (of_points) kit::accumulate(dp, second["grad(points)"]);
    }
    return result;
  }

 private:
  static Tensor grad_points(const Table& table, const Tensor& grad, const Tensor& x, const Tensor& points) {
    return std::get<1>(table.backward(grad, x, points, c10::List<bool>({false, true})));
  }
};

// The levels of a table have columns of their own in grad, and are a dim in the computation: grad [..., N, levels, F],
// points and directions [..., N, 1, axes].
template <class Table>
struct Levels {
  static constexpr bool has_levels = requires(const Table& t) { t.levels(); };

  static Tensor split(const Table& table, const Tensor& grad) {
    if constexpr (has_levels) {
      if (!grad.defined()) return grad;
      c10::SymDimVector sizes(grad.sym_sizes());
      sizes.back() = sizes.back() / table.levels();
      sizes.insert(sizes.end() - 1, table.levels());
      return grad.reshape_symint(sizes);
    } else {
      return grad;
    }
  }
  static Tensor join(const Tensor& grad) {
    if constexpr (has_levels) return grad.defined() ? merge_dims(grad, -2) : grad;
    return grad;
  }
  static Tensor spread_points(const Tensor& points) {
    if constexpr (has_levels) return points.defined() ? points.unsqueeze(-2) : points;
    return points;
  }
  static Tensor sum_points(const Tensor& points) {
    if constexpr (has_levels) return points.defined() ? points.sum(-2) : points;
    return points;
  }
};

// With u = grad_grad_x and v = grad_grad_points:
//
//   grad_grad   = sum_c w_c u_c + w_c(v) x_c
//   grad_x_c    = w_c(v) grad
//   grad_points = sum_c d_k w_c (u_c . grad) + d_k w_c(v) (x_c . grad)
template <class Table>
struct DoubleBackwardFormula {
  using Op = typename Table::DoubleBackward;
  static constexpr auto reads = interpolation::reads<Op>({
      {"grad", {Table::features, "points", Table::second, "grad_grad_points"}},
      {Table::features, {"grad", "points", "grad_grad_points"}},
      {"points", {"grad", Table::features, "points", Table::second, "grad_grad_points"}},
      {Table::second, {"grad", "points"}},
      {"grad_grad_points", {"grad", Table::features, "points"}},
  });

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<DoubleBackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const Table table(saved);
    const Weights w = table.weights(saved["points"]);
    const Tensor g = L::split(table, saved["grad"]), v = L::spread_points(saved["grad_grad_points"]);
    const Tensor x = gather(table, saved[Table::features]), u = gather(table, saved[Table::second]);
    const Tensor of_g = L::split(table, grads["grad(grad)"]), of_p = L::spread_points(grads["grad(points)"]);
    const Tensor of_x = gather(table, grads[Table::grad_features]);
    kit::Inputs<Op> result;
    Tensor &dg = result["grad"], &dp = result["points"], &dv = result["grad_grad_points"], dx, du;
    const bool of_features = need[Table::features], of_second = need[Table::second];
    if (of_g.defined()) {
      if (of_features) kit::accumulate(dx, spread(w.along({v}), of_g));
      if (of_second) kit::accumulate(du, spread(w.along({}), of_g));
      if (need["grad_grad_points"]) kit::accumulate(dv, project(w.slopes_along({}), x, of_g));
      if (need["points"]) {
        kit::accumulate(dp, project(w.slopes_along({v}), x, of_g));
        if (u.defined()) kit::accumulate(dp, project(w.slopes_along({}), u, of_g));
      }
    }
    if (of_x.defined()) {
      if (need["grad"]) kit::accumulate(dg, combine(w.along({v}), of_x));
      if (need["grad_grad_points"]) kit::accumulate(dv, project(w.slopes_along({}), of_x, g));
      if (need["points"]) kit::accumulate(dp, project(w.slopes_along({v}), of_x, g));
    }
    if (of_p.defined()) {
      if (need["grad"]) {
        kit::accumulate(dg, combine(w.along({v, of_p}), x));
        if (u.defined()) kit::accumulate(dg, combine(w.along({of_p}), u));
      }
      if (of_features) kit::accumulate(dx, spread(w.along({v, of_p}), g));
      if (of_second) kit::accumulate(du, spread(w.along({of_p}), g));
      if (need["grad_grad_points"]) kit::accumulate(dv, project(w.slopes_along({of_p}), x, g));
      if (need["points"]) {
        kit::accumulate(dp, project(w.slopes_along({v, of_p}), x, g));
        if (u.defined()) kit::accumulate(dp, project(w.slopes_along({of_p}), u, g));
      }
    }
    if (dx.defined()) result[Table::features] = table.scatter(dx);
    if (du.defined()) result[Table::second] = table.scatter(du);
    dg = L::join(dg);
    dp = L::sum_points(dp);
    dv = L::sum_points(dv);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<DoubleBackwardFormula>& saved) {
    const Table table(saved);
    const Weights w = table.weights(saved["points"]);
    const Tensor g = L::split(table, saved["grad"]), v = L::spread_points(saved["grad_grad_points"]);
    const Tensor x = gather(table, saved[Table::features]), u = gather(table, saved[Table::second]);
    const Tensor tg = L::split(table, tangents["grad"]), tp = L::spread_points(tangents["points"]),
                 tv = L::spread_points(tangents["grad_grad_points"]);
    const Tensor tx = gather(table, tangents[Table::features]), tu = gather(table, tangents[Table::second]);
    kit::Outputs<Op> result;
    Tensor grad_x;
    const auto add_grad = [&](const Directions& directions, const Tensor& of_corners) {
      if (!saved.is_requested("grad(grad)")) return;
      kit::accumulate(result["grad(grad)"], combine(w.along(directions), of_corners));
    };
    const auto add_features = [&](const Directions& directions, const Tensor& grad) {
      if (!saved.is_requested(Table::grad_features)) return;
      kit::accumulate(grad_x, spread(w.along(directions), grad));
    };
    const auto add_points = [&](const Directions& directions, const Tensor& of_corners, const Tensor& grad) {
      if (!saved.is_requested("grad(points)")) return;
      kit::accumulate(result["grad(points)"], project(w.slopes_along(directions), of_corners, grad));
    };
    if (tg.defined()) {
      add_features({v}, tg);
      add_points({v}, x, tg);
      if (u.defined()) add_points({}, u, tg);
    }
    if (tx.defined()) {
      add_grad({v}, tx);
      add_points({v}, tx, g);
    }
    if (tu.defined()) {
      add_grad({}, tu);
      add_points({}, tu, g);
    }
    if (tv.defined()) {
      add_grad({tv}, x);
      add_features({tv}, g);
      add_points({tv}, x, g);
    }
    if (tp.defined()) {
      add_grad({v, tp}, x);
      add_features({v, tp}, g);
      add_points({v, tp}, x, g);
      if (u.defined()) {
        add_grad({tp}, u);
        add_points({tp}, u, g);
      }
    }
    if (grad_x.defined()) result[Table::grad_features] = table.scatter(grad_x);
    result["grad(grad)"] = L::join(result["grad(grad)"]);
    result["grad(points)"] = L::sum_points(result["grad(points)"]);
    return result;
  }

 private:
  using L = Levels<Table>;

  static Tensor gather(const Table& table, const Tensor& features) {
    return features.defined() ? table.gather(features) : Tensor();
  }
};

// The formulas in a TORCH_LIBRARY_IMPL of the Autograd key.
template <class Table>
void implement_autograd(torch::Library& library) {
  library.impl(Table::Forward::name, kit::autograd<ForwardFormula<Table>>());
  library.impl(Table::Backward::name, kit::autograd<BackwardFormula<Table>>());
  library.impl(Table::DoubleBackward::name, kit::autograd<DoubleBackwardFormula<Table>>());
}

}  // namespace cppcuda::interpolation
