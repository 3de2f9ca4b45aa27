// Defines the operators, and the C++ functions.
#include "ops/spherical_harmonics/op.h"

#include <sph/spherical_harmonics.h>
#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "ops/spherical_harmonics/shape.h"

namespace sph {

at::Tensor spherical_harmonics(const at::Tensor& xyz, int64_t degree, bool normalize) {
  cppcuda::kit::check_defined("spherical_harmonics", "xyz", xyz);
  return ops::spherical_harmonics::Forward::call(xyz, degree, normalize);
}

namespace ops::spherical_harmonics {

TORCH_LIBRARY_FRAGMENT(sph, m) {
  kit::define<Forward, forward_shape>(m);
  kit::define<Backward, backward_shape>(m);
  kit::define<Partials, linear_shape<Partials>>(m);
  kit::define<PartialsTransposed, linear_shape<PartialsTransposed>>(m);
}

}  // namespace ops::spherical_harmonics
}  // namespace sph
