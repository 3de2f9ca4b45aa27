// The C++ function row_norm, the conversion of tensors to the kernels' Params, which serves CPU and CUDA, and the
// registration. Change: the arguments and the Params.
#include "ops/row_norm/op.h"

#include <ATen/OpMathType.h>
#include <my_ops/row_norm.h>
#include <torch/library.h>

#include <array>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/row_strides.h"
#include "ops/row_norm/formulas.h"
#include "ops/row_norm/params.h"

namespace my_ops {

at::Tensor row_norm(const at::Tensor& input, double eps) {
  cppcuda::kit::check_defined("row_norm", "input", input);
  return ops::row_norm::Forward::call(input, eps);
}

namespace ops::row_norm {
namespace {

// A declaration cannot say that rstd is float32 if input has 16 bits.
std::array<kit::Output, 2> shape(const kit::Args<ForwardWithRstd>& args) {
  auto outputs = kit::outputs_of(args);
  outputs[1].options = outputs[1].options.dtype(at::toOpMathType(args["input"].scalar_type()));
  return outputs;
}

template <class T>
Operand<T> operand(const Tensor& t) {
  return {t.const_data_ptr<T>(), kit::row_stride(t, /*own=*/1), t.stride(-1)};
}

// rstd may be undefined.
void run_forward(const Tensor& input, double eps, const Tensor& output, const Tensor& rstd) {
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = operand<T>(input);
    kit::run(input.device(), ForwardParams<T>{.input = from,
                                              .output = output.mutable_data_ptr<T>(),
                                              .rstd = kit::mutable_data_of<kit::opmath<T>>(rstd),
                                              .rows = kit::make_rows(input, /*own=*/1, from.strides),
                                              .features = input.size(-1),
                                              .eps = eps});
  });
}

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  run_forward(args["input"], args.get<"eps">(), out["output"], {});
}

void forward_with_rstd(const kit::Args<ForwardWithRstd>& args, const kit::Outputs<ForwardWithRstd>& out) {
  run_forward(args["input"], args.get<"eps">(), out["output"], out["rstd"]);
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
  // If there is a gradient, row_norm calls _row_norm, which returns what the gradient reads.
  kit::define<Forward>(m).implement<forward>().differentiate_through<ForwardWithRstd>();
  kit::define<ForwardWithRstd, shape>(m).implement<forward_with_rstd>().differentiate<ForwardFormula>();
  kit::define<Backward>(m).implement<backward>().differentiate<BackwardFormula>();
}

}  // namespace
}  // namespace ops::row_norm
}  // namespace my_ops
