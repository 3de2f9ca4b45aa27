// The C++ function, the conversion of tensors to the kernels' Params, for CPU and CUDA, and the registration.
#include "ops/spherical_harmonics/op.h"

#include <sph/spherical_harmonics.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/row_strides.h"
#include "ops/spherical_harmonics/formulas.h"
#include "ops/spherical_harmonics/math.h"
#include "ops/spherical_harmonics/params.h"

namespace sph {

at::Tensor spherical_harmonics(const at::Tensor& xyz, int64_t degree, bool normalize) {
  return cppcuda::kit::call<ops::spherical_harmonics::Forward>(xyz, degree, normalize);
}

namespace ops::spherical_harmonics {
namespace {

// The output, after a check of what a declaration cannot say.
template <class TheOp>
kit::Output output(const kit::Args<TheOp>& args) {
  const int64_t degree = args.template get<"degree">();
  TORCH_CHECK(degree >= 0 && degree <= max_degree, TheOp::base_name(), ": degree must be between 0 and ", max_degree,
              ", got ", degree);
  return kit::outputs_of(args);
}

template <class T>
Operand<T> operand(const Tensor& t) {
  return {t.const_data_ptr<T>(), kit::row_stride(t, /*own=*/1), t.stride(-1)};
}

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  const Tensor& xyz = args["xyz"];
  kit::visit_dtype(xyz.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = operand<T>(xyz);
    kit::run(xyz.device(), ForwardParams<T>{.xyz = from,
                                            .output = out["output"].mutable_data_ptr<T>(),
                                            .rows = kit::make_rows(xyz, /*own=*/1, from.strides),
                                            .degree = static_cast<int>(args.get<"degree">()),
                                            .normalize = args.get<"normalize">()});
  });
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  const Tensor& xyz = args["xyz"];
  kit::visit_dtype(xyz.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from_grad = operand<T>(args["grad"]), from_xyz = operand<T>(xyz);
    kit::run(xyz.device(),
             BackwardParams<T>{.grad = from_grad,
                               .xyz = from_xyz,
                               .grad_xyz = out["grad(xyz)"].mutable_data_ptr<T>(),
                               .rows = kit::make_rows(xyz, /*own=*/1, from_grad.strides, from_xyz.strides),
                               .degree = static_cast<int>(args.get<"degree">()),
                               .normalize = args.get<"normalize">()});
  });
}

void partials(const kit::Args<Partials>& args, const kit::Outputs<Partials>& out) {
  const Tensor& harmonics = args["harmonics"];
  kit::visit_dtype(harmonics.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = operand<T>(harmonics);
    kit::run(harmonics.device(), PartialsParams<T>{.harmonics = from,
                                                   .output = out["output"].mutable_data_ptr<T>(),
                                                   .rows = kit::make_rows(harmonics, /*own=*/1, from.strides),
                                                   .degree = static_cast<int>(args.get<"degree">())});
  });
}

void partials_transposed(const kit::Args<PartialsTransposed>& args, const kit::Outputs<PartialsTransposed>& out) {
  const Tensor& grad = args["grad"];
  kit::visit_dtype(grad.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const Operand<T> from{grad.const_data_ptr<T>(), kit::row_stride(grad, /*own=*/2), grad.stride(-1), grad.stride(-2)};
    kit::run(grad.device(), PartialsTransposedParams<T>{.grad = from,
                                                        .output = out["output"].mutable_data_ptr<T>(),
                                                        .rows = kit::make_rows(grad, /*own=*/2, from.strides),
                                                        .degree = static_cast<int>(args.get<"degree">())});
  });
}

TORCH_LIBRARY_FRAGMENT(sph, m) {
  kit::define<Forward, output<Forward>>(m).implement<forward>().differentiate<ForwardFormula>();
  kit::define<Backward, output<Backward>>(m).implement<backward>().differentiate<BackwardFormula>();
  kit::define<Partials, output<Partials>>(m)
      .implement<partials>()
      .differentiate<LinearFormula<Partials, PartialsTransposed>>();
  kit::define<PartialsTransposed, output<PartialsTransposed>>(m)
      .implement<partials_transposed>()
      .differentiate<LinearFormula<PartialsTransposed, Partials>>();
}

}  // namespace
}  // namespace ops::spherical_harmonics
}  // namespace sph
