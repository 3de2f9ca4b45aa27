// The outputs before they have memory, after a check of what a declaration cannot say.
#pragma once

#include "cppcuda/kit/shape.h"
#include "ops/spherical_harmonics/math.h"
#include "ops/spherical_harmonics/op.h"

namespace sph::ops::spherical_harmonics {

template <class Op, class... Args>
kit::Output checked_output(int64_t degree, const Args&... args) {
  TORCH_CHECK(degree >= 0 && degree <= max_degree, Op::base_name(), ": degree must be between 0 and ", max_degree,
              ", got ", degree);
  return kit::Shape<Op>::outputs(args...);
}

inline kit::Output forward_shape(const Tensor& xyz, int64_t degree, bool normalize) {
  return checked_output<Forward>(degree, xyz, degree, normalize);
}

inline kit::Output backward_shape(const Tensor& grad, const Tensor& xyz, int64_t degree, bool normalize) {
  return checked_output<Backward>(degree, grad, xyz, degree, normalize);
}

template <class Op>
kit::Output linear_shape(const Tensor& t, int64_t degree) {
  return checked_output<Op>(degree, t, degree);
}

}  // namespace sph::ops::spherical_harmonics
