// Converts tensors to the kernels' Params, for CPU and CUDA.
#include <torch/library.h>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/row_strides.h"
#include "ops/spherical_harmonics/op.h"
#include "ops/spherical_harmonics/params.h"
#include "ops/spherical_harmonics/shape.h"

namespace sph::ops::spherical_harmonics {
namespace {

template <class T>
Operand<T> operand(const Tensor& t) {
  return {t.const_data_ptr<T>(), kit::row_stride(t, /*own=*/1), t.stride(-1)};
}

Tensor forward(const Tensor& xyz, int64_t degree, bool normalize) {
  Tensor output = kit::allocate(forward_shape(xyz, degree, normalize));
  kit::visit_dtype(xyz.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = operand<T>(xyz);
    kit::run(xyz.device(), ForwardParams<T>{.xyz = from,
                                            .output = output.mutable_data_ptr<T>(),
                                            .rows = kit::make_rows(xyz, /*own=*/1, from.strides),
                                            .degree = static_cast<int>(degree),
                                            .normalize = normalize});
  });
  return output;
}

Tensor backward(const Tensor& grad, const Tensor& xyz, int64_t degree, bool normalize) {
  Tensor grad_xyz = kit::allocate(backward_shape(grad, xyz, degree, normalize));
  kit::visit_dtype(xyz.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from_grad = operand<T>(grad), from_xyz = operand<T>(xyz);
    kit::run(xyz.device(),
             BackwardParams<T>{.grad = from_grad,
                               .xyz = from_xyz,
                               .grad_xyz = grad_xyz.mutable_data_ptr<T>(),
                               .rows = kit::make_rows(xyz, /*own=*/1, from_grad.strides, from_xyz.strides),
                               .degree = static_cast<int>(degree),
                               .normalize = normalize});
  });
  return grad_xyz;
}

Tensor partials(const Tensor& harmonics, int64_t degree) {
  Tensor output = kit::allocate(linear_shape<Partials>(harmonics, degree));
  kit::visit_dtype(harmonics.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = operand<T>(harmonics);
    kit::run(harmonics.device(), PartialsParams<T>{.harmonics = from,
                                                   .output = output.mutable_data_ptr<T>(),
                                                   .rows = kit::make_rows(harmonics, /*own=*/1, from.strides),
                                                   .degree = static_cast<int>(degree)});
  });
  return output;
}

Tensor partials_transposed(const Tensor& grad, int64_t degree) {
  Tensor output = kit::allocate(linear_shape<PartialsTransposed>(grad, degree));
  kit::visit_dtype(grad.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const Operand<T> from{grad.const_data_ptr<T>(), kit::row_stride(grad, /*own=*/2), grad.stride(-1), grad.stride(-2)};
    kit::run(grad.device(), PartialsTransposedParams<T>{.grad = from,
                                                        .output = output.mutable_data_ptr<T>(),
                                                        .rows = kit::make_rows(grad, /*own=*/2, from.strides),
                                                        .degree = static_cast<int>(degree)});
  });
  return output;
}

TORCH_LIBRARY_FRAGMENT(sph, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<Backward, backward>(m);
  kit::implement<Partials, partials>(m);
  kit::implement<PartialsTransposed, partials_transposed>(m);
}

}  // namespace
}  // namespace sph::ops::spherical_harmonics
