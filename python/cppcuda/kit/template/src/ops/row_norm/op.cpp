// The C++ function row_norm, the conversion of tensors to the kernels' Params, which serves CPU and CUDA, and the
// registration. Change: the arguments and the Params.
#include "ops/row_norm/op.h"

#include <ATen/OpMathType.h>
#include <my_ops/row_norm.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/row_strides.h"
#include "ops/row_norm/formulas.h"
#include "ops/row_norm/params.h"

namespace my_ops {

at::Tensor row_norm(const at::Tensor& input, double eps) {
  return cppcuda::kit::call<ops::row_norm::Forward>(input, eps);
}

namespace ops::row_norm {
namespace {

template <class T>
Operand<T> operand(const Tensor& t) {
  return {t.const_data_ptr<T>(), kit::row_stride(t, /*own=*/1), t.stride(-1)};
}

// rstd is undefined if no gradient is needed.
void forward(const kit::Args<ForwardWithRstd>& args, const kit::Outputs<ForwardWithRstd>& out) {
  const Tensor& input = args["input"];
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = operand<T>(input);
    kit::run(input.device(), ForwardParams<T>{.input = from,
                                              .output = out["output"].mutable_data_ptr<T>(),
                                              .rstd = kit::mutable_data_of<kit::opmath<T>>(out["rstd"]),
                                              .rows = kit::make_rows(input, /*own=*/1, from.strides),
                                              .features = input.size(-1),
                                              .eps = args.get<"eps">()});
  });
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  const Tensor &grad = args["grad"], &input = args["input"], &rstd = args["rstd"];
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const Tensor wide_rstd = rstd.to(at::toOpMathType(rstd.scalar_type()));  // that of _row_norm is wide already
    const auto from_grad = operand<T>(grad), from_input = operand<T>(input);
    const Operand<A> from_rstd{wide_rstd.const_data_ptr<A>(), kit::row_stride(wide_rstd, /*own=*/0)};
    kit::run(input.device(), BackwardParams<T>{.grad = from_grad,
                                               .input = from_input,
                                               .rstd = from_rstd,
                                               .grad_input = out["grad(input)"].mutable_data_ptr<T>(),
                                               .rows = kit::make_rows(input, /*own=*/1, from_grad.strides,
                                                                      from_input.strides, from_rstd.strides),
                                               .features = input.size(-1)});
  });
}

TORCH_LIBRARY_FRAGMENT(my_ops, m) {
  kit::define<Forward>(m).implement<forward>().differentiate<ForwardFormula>();
  kit::define<Backward>(m).implement<backward>().differentiate<BackwardFormula>();
}

}  // namespace
}  // namespace ops::row_norm
}  // namespace my_ops
