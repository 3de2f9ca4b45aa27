#pragma once

#include "cppcuda/kit/elementwise/points.h"
#include "cppcuda/kit/math/functions.h"

namespace elasticity {

namespace kit = cppcuda::kit;

// The energy per volume of a compressible neo-Hookean solid whose deformation has the gradient F: with J = det F,
// mu / 2 (|F|^2 - 3) - mu log J + lam / 2 (log J)^2. Its gradient is the first Piola-Kirchhoff stress, and its
// Hessian the tangent stiffness. J. Bonet and R. D. Wood, "Nonlinear continuum mechanics for finite element analysis",
// 2nd edition, 2008, section 6.4.3.
struct NeoHookean {
  static constexpr char schema[] = "elasticity::neo_hookean(Tensor F[..., 3, 3], float mu, float lam) -> Tensor[...]";

  template <class A>
  CPPCUDA_HOST_DEVICE static A forward(kit::Array<A, 3, 3> f, A mu, A lam) {
    const A log_j = kit::log(kit::determinant(f));
    return A(0.5) * mu * (kit::dot(f, f) - A(3)) - mu * log_j + A(0.5) * lam * log_j * log_j;
  }
};

}  // namespace elasticity
