#include <torch/library.h>

#include "interpolation/formulas.h"
#include "ops/trilinear_indexed/op.h"

namespace cppcuda::ops::trilinear_indexed {
namespace {

// The corners of points are rows of a table that they share.
class Table {
 public:
  using Forward = trilinear_indexed::Forward;
  using Backward = trilinear_indexed::Backward;
  using DoubleBackward = trilinear_indexed::DoubleBackward;
  static constexpr const char *features = "table", *grad_features = "grad(table)", *second = "grad_grad_table";

  // The size of the table, which the other operators take.
  struct Attributes {
    static constexpr auto attribute_names = kit::names("size");
    static auto attributes(const Tensor& table, const Tensor&, const Tensor&) {
      return std::make_tuple(std::vector<c10::SymInt>{table.sym_size(-2)});
    }
  };

  template <class Saved>
  explicit Table(const Saved& saved) : corners_(saved["corners"]), size_(saved.template attribute<"size">()) {}

  Tensor forward(const Tensor& table, const Tensor& points) const { return Forward::call(table, corners_, points); }
  auto backward(const Tensor& grad, const OptionalTensor& table, const Tensor& points,
                const c10::List<bool>& output_mask) const {
    return Backward::call(grad, table, corners_, points, size_, output_mask);
  }
  auto double_backward(const Tensor& grad, const OptionalTensor& table, const Tensor& points,
                       const OptionalTensor& grad_grad_table, const Tensor& grad_grad_points,
                       const c10::List<bool>& output_mask, at::IntArrayRef order) const {
    return DoubleBackward::call(grad, table, corners_, points, grad_grad_table, grad_grad_points, size_, output_mask,
                                order);
  }

 private:
  Tensor corners_;
  std::vector<c10::SymInt> size_;
};

// Each component of the gradient is a derivative in the direction of an axis, which DoubleBackward computes.
struct WithGradFormula : Table::Attributes {
  using Op = WithGrad;
  static constexpr auto reads = interpolation::reads<Op>({{"table", {"points"}}, {"points", {"table", "points"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<WithGradFormula>& saved,
                             const kit::Need<Op>& need) {
    const Table table(saved);
    const bool of_table = need["table"], of_points = need["points"];
    const OptionalTensor x = of_points ? OptionalTensor(saved["table"]) : std::nullopt;
    const Tensor& p = saved["points"];
    kit::Inputs<Op> result;
    if (grads["value"].defined()) {
      std::tie(result["table"], result["points"]) =
          table.backward(grads["value"], x, p, c10::List<bool>({of_table, of_points}));
    }
    const Tensor& gradient = grads["gradient"];
    if (!gradient.defined()) return result;
    const auto add = [&](const Tensor& grad, const Tensor& direction) {
      const auto [unused, grad_table, grad_points] =
          table.double_backward(grad, x, p, std::nullopt, direction, c10::List<bool>({false, of_table, of_points}), {});
      if (of_table) kit::accumulate(result["table"], grad_table);
      if (of_points) kit::accumulate(result["points"], grad_points);
    };
    if (gradient.sym_size(-2) == 1) {  // of one feature, the sum over the axes is a derivative in one direction
      add(at::ones_like(gradient.select(-1, 0)), gradient.select(-2, 0).to(p.scalar_type()));
    } else {
      for (int64_t d = 0; d < 3; ++d) add(gradient.select(-1, d), interpolation::direction(p, d));
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<WithGradFormula>& saved) {
    const Table table(saved);
    const auto [x, p] = saved.get<"table", "points">();
    const auto [tx, tp] = tangents.get<"table", "points">();
    kit::Outputs<Op> result;
    if (tx.defined()) {
      std::tie(result["value"], result["gradient"]) = WithGrad::call(tx, saved["corners"], p);
    }
    if (!tp.defined()) return result;
    const auto along = [&](const interpolation::Orders& order) {
      return interpolation::call_double_backward(table, {}, x, p, {}, tp, {true, false, false}, order)["grad(grad)"];
    };
    kit::accumulate(result["value"], along({}));
    std::vector<Tensor> by_axis;
    for (int64_t d = 0; d < 3; ++d) by_axis.push_back(along(interpolation::raised({}, p, d)));
    kit::accumulate(result["gradient"], at::stack(by_axis, -1));
    return result;
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  interpolation::implement_autograd<Table>(m);
  m.impl(WithGrad::name, kit::autograd<WithGradFormula>());
}

}  // namespace
}  // namespace cppcuda::ops::trilinear_indexed
