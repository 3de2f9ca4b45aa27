// The C++ function row_norm, the conversion of tensors to the kernels' Params, which serves CPU and CUDA, and the
// registration. Change: the arguments and the Params.
#include "ops/row_norm/op.h"

#include <my_ops/row_norm.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "ops/row_norm/formulas.h"
#include "ops/row_norm/params.h"

namespace my_ops {

at::Tensor row_norm(const at::Tensor& input, double eps) {
  return cppcuda::kit::call<ops::row_norm::Forward>(input, eps);
}

namespace ops::row_norm {
namespace {

// rstd is undefined if no gradient is needed.
void forward(const kit::Args<ForwardWithRstd>& args, const kit::Outputs<ForwardWithRstd>& out) {
  const Tensor& input = args["input"];
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    kit::run(input.device(),
             kit::fill<ForwardParams<T>>(args, out, kit::make_rows(args), input.size(-1), args.get<"eps">()));
  });
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  const Tensor& input = args["input"];
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    kit::run(input.device(), kit::fill<BackwardParams<T>>(args, out, kit::make_rows(args), input.size(-1)));
  });
}

TORCH_LIBRARY_FRAGMENT(my_ops, m) {
  kit::define<Forward>(m).implement<forward>().differentiate<ForwardFormula>();
  kit::define<Backward>(m).implement<backward>().differentiate<BackwardFormula>();
}

}  // namespace
}  // namespace ops::row_norm
}  // namespace my_ops
