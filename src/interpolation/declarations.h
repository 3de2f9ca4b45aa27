#pragma once

// The declarations of the operators that compute first and second derivatives of interpolation, from that of the
// operator that interpolates `Features` at "points". formulas.h says what they compute.

#include "types.h"

namespace cppcuda::interpolation {

template <class Forward, kit::FixedString Features>
using Backward =
    kit::BackwardOf<Forward, kit::GradientReads<Features, "points">, kit::GradientReads<"points", Features, "points">>;

// A missing gradient of the gradient of the features is zeros. More may be FurtherArguments.
template <class Backward, kit::FixedString Features, class... More>
using DoubleBackward =
    kit::BackwardOf<Backward, kit::GradientReads<"grad", Features, "points", "grad_grad_points">,
                    kit::GradientReads<Features, "grad", "points", "grad_grad_points">,
                    kit::GradientReads<"points", "grad", Features, "points", "grad_grad_points">, More...>;

// The weights are differentiated order[k] times by coordinate k.
using DerivativeArgument = kit::FurtherArguments<"int[] derivative=[]">;

}  // namespace cppcuda::interpolation
