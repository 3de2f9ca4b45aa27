// spherical_harmonics as a C++ function.
#pragma once

#include <ATen/core/Tensor.h>
#include <sph/export.h>

namespace sph {

// The real spherical harmonics of all degrees up to `degree`, 0 .. 20: of the directions of the points, or, without
// normalize, the solid harmonics r^l Y_l^m of the points. Order: l, then m = -l .. l. Orthonormal, without a
// Condon-Shortley phase. Differentiable in xyz, any number of times.
SPH_EXPORT at::Tensor spherical_harmonics(const at::Tensor& xyz,  // [N, 3] or [B, N, 3], with any strides
                                          int64_t degree, bool normalize = true);  // -> [..., (degree + 1)^2]

}  // namespace sph
