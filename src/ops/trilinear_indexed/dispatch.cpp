// Converts tensors to the kernels' Params.

#include "interpolation/dispatch.h"

#include <torch/library.h>

#include "cppcuda/kit/output.h"
#include "cppcuda/kit/shape.h"
#include "ops/trilinear_indexed/lookup.h"
#include "ops/trilinear_indexed/op.h"

namespace cppcuda::ops::trilinear_indexed {
namespace {

using interpolation::requested;

// Calls f(lookup), and throws if a corner is out of range.
template <class Op, class F>
void with_lookup(const Tensor& corners, int64_t rows, F f) {
  int64_t offender = Lookup<int64_t>::none;
  const auto call = [&]<class I>(std::type_identity<I>) {
    f(Lookup<I>{.corners = interpolation::strided<I>(corners),
                .points = corners.size(-2),
                .rows = rows,
                .offender = &offender});
  };
  corners.scalar_type() == at::kInt ? call(std::type_identity<int32_t>()) : call(std::type_identity<int64_t>());
  if (offender == Lookup<int64_t>::none) return;
  at::DimVector at(corners.dim());
  for (int64_t d = corners.dim(), rest = offender; d-- > 0; rest /= corners.size(d)) at[d] = rest % corners.size(d);
  Tensor index = corners;
  for (const int64_t i : at) index = index.select(0, i);
  TORCH_CHECK_INDEX(false, Op::base_name(), ": corners must be in [-1, V) with V = ", rows, ", got ",
                    index.item<int64_t>(), " at ", at::IntArrayRef(at));
}

Tensor forward(const Tensor& table, const Tensor& corners, const Tensor& points) {
  Tensor out = kit::allocate(kit::Shape<Forward>::outputs(table, corners, points));
  with_lookup<Forward>(corners, table.size(-2),
                       [&](const auto& lookup) { interpolation::run_forward(lookup, table, points, out); });
  return out;
}

std::tuple<Tensor, Tensor> with_grad(const Tensor& table, const Tensor& corners, const Tensor& points) {
  auto [value, gradient] = kit::allocate(kit::Shape<WithGrad>::outputs(table, corners, points));
  with_lookup<WithGrad>(corners, table.size(-2), [&, &out = value, &out_slopes = gradient](const auto& lookup) {
    if (out.numel() == 0) return;
    interpolation::gather(lookup, {.points = points, .table = table, .out = out, .out_slopes = out_slopes});
  });
  return {value, gradient};
}

std::tuple<Tensor, Tensor> backward(const Tensor& grad, const OptionalTensor& table, const Tensor& corners,
                                    const Tensor& points, c10::SymIntArrayRef size, c10::List<bool> output_mask) {
  auto [grad_table, grad_points] =
      kit::allocate(kit::Shape<Backward>::outputs(grad, table, corners, points, size, output_mask));
  const Tensor of_table = requested(grad_table, output_mask[0]), of_points = requested(grad_points, output_mask[1]);
  with_lookup<Backward>(corners, size[0].expect_int(), [&](const auto& lookup) {
    interpolation::run_backward(lookup, grad, kit::tensor_or_undefined(table), points, of_table, of_points);
  });
  return {grad_table, grad_points};
}

std::tuple<Tensor, Tensor, Tensor> double_backward(const Tensor& grad, const OptionalTensor& table,
                                                   const Tensor& corners, const Tensor& points,
                                                   const OptionalTensor& grad_grad_table,
                                                   const Tensor& grad_grad_points, c10::SymIntArrayRef size,
                                                   c10::List<bool> output_mask, at::IntArrayRef order) {
  auto [grad_grad, grad_table, grad_points] = kit::allocate(kit::Shape<DoubleBackward>::outputs(
      grad, table, corners, points, grad_grad_table, grad_grad_points, size, output_mask, order));
  const Tensor of_grad = requested(grad_grad, output_mask[0]), of_table = requested(grad_table, output_mask[1]),
               of_points = requested(grad_points, output_mask[2]);
  const auto by = interpolation::order_of(DoubleBackward::base_name(), order, points);
  with_lookup<DoubleBackward>(corners, size[0].expect_int(), [&](const auto& lookup) {
    interpolation::run_double_backward(lookup, grad, kit::tensor_or_undefined(table), points,
                                       kit::tensor_or_undefined(grad_grad_table), grad_grad_points, by, of_grad,
                                       of_table, of_points);
  });
  return {grad_grad, grad_table, grad_points};
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<Backward, backward>(m);
  kit::implement<DoubleBackward, double_backward>(m);
  kit::implement<WithGrad, with_grad>(m);
}

}  // namespace
}  // namespace cppcuda::ops::trilinear_indexed
