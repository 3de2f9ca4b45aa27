// The declarations, from which schemas, checks of arguments, Meta, vmap and DTensor follow.
#pragma once

#include "cppcuda/kit/op.h"

namespace sph::ops::spherical_harmonics {

namespace kit = cppcuda::kit;
using at::Tensor;

// The harmonics of all degrees up to L, (L + 1)^2 many; normalize: of the points' directions.
using Forward = kit::Op<
    "sph::spherical_harmonics(Tensor xyz[B?, N, 3], int degree[L], bool normalize=True) -> "
    "Tensor[B?, N, LL + 2L + 1]",
    kit::Independent<"N">>;

using Backward = kit::BackwardOf<Forward, kit::GradientReads<"xyz", "xyz">>;

// The derivatives of the solid harmonics along each axis, which are sums of the harmonics up to degree L - 1.
using Partials = kit::Op<
    "sph::_solid_harmonics_partials(Tensor harmonics[B?, N, LL], int degree[L]) -> Tensor[B?, N, 3, LL + 2L + 1]",
    kit::Independent<"N">>;

// The transpose of this matrix.
using PartialsTransposed = kit::Op<
    "sph::_solid_harmonics_partials_transposed(Tensor grad[B?, N, 3, LL + 2L + 1], int degree[L]) -> "
    "Tensor[B?, N, LL]",
    kit::Independent<"N">>;

}  // namespace sph::ops::spherical_harmonics
