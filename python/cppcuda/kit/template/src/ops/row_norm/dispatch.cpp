// Converts tensors to the kernels' Params. Change: the Params. The same code serves CPU and CUDA.
#include <torch/library.h>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/row_strides.h"
#include "ops/row_norm/op.h"
#include "ops/row_norm/params.h"
#include "ops/row_norm/shape.h"

namespace my_ops::ops::row_norm {
namespace {

template <class T>
Operand<T> operand(const Tensor& t) {
  return {t.const_data_ptr<T>(), kit::row_stride(t, /*own=*/1), t.stride(-1)};
}

// rstd may be undefined.
void run_forward(const Tensor& input, double eps, const Tensor& output, const Tensor& rstd) {
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = operand<T>(input);
    kit::run(input.device(),
             ForwardParams<T>{.input = from,
                              .output = output.mutable_data_ptr<T>(),
                              .rstd = rstd.defined() ? rstd.mutable_data_ptr<kit::opmath<T>>() : nullptr,
                              .rows = kit::make_rows(input, /*own=*/1, from.strides),
                              .features = input.size(-1),
                              .eps = eps});
  });
}

Tensor forward(const Tensor& input, double eps) {
  Tensor output = kit::allocate(kit::Shape<Forward>::outputs(input, eps));
  run_forward(input, eps, output, {});
  return output;
}

std::tuple<Tensor, Tensor> forward_with_rstd(const Tensor& input, double eps) {
  auto [output, rstd] = kit::allocate(shape(input, eps));
  run_forward(input, eps, output, rstd);
  return {output, rstd};
}

Tensor backward(const Tensor& grad, const Tensor& input, const Tensor& rstd) {
  Tensor result = kit::allocate(kit::Shape<Backward>::outputs(grad, input, rstd));
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const Tensor wide_rstd = rstd.to(at::toOpMathType(rstd.scalar_type()));  // that of _row_norm is wide already
    const auto from_grad = operand<T>(grad), from_input = operand<T>(input);
    const Operand<A> from_rstd{wide_rstd.const_data_ptr<A>(), kit::row_stride(wide_rstd, /*own=*/0)};
    kit::run(input.device(), BackwardParams<T>{.grad = from_grad,
                                               .input = from_input,
                                               .rstd = from_rstd,
                                               .grad_input = result.mutable_data_ptr<T>(),
                                               .rows = kit::make_rows(input, /*own=*/1, from_grad.strides,
                                                                      from_input.strides, from_rstd.strides),
                                               .features = input.size(-1)});
  });
  return result;
}

TORCH_LIBRARY_FRAGMENT(my_ops, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<ForwardWithRstd, forward_with_rstd>(m);
  kit::implement<Backward, backward>(m);
}

}  // namespace
}  // namespace my_ops::ops::row_norm
