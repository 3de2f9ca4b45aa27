#pragma once

#include "interpolation/declarations.h"

namespace cppcuda::ops::spline_sample {

using Sample2d = kit::Op<
    "cppcuda::spline_sample2d(Tensor input[B?, H, W, F], Tensor points[B?, N, 2] keep_wide, int order=3, "
    "str border=\"mirror\") -> Tensor[B?, N, F]",
    kit::Independent<"N", "F">>;
using Sample3d = kit::Op<
    "cppcuda::spline_sample3d(Tensor input[B?, D, H, W, F], Tensor points[B?, N, 3] keep_wide, int order=3, "
    "str border=\"mirror\") -> Tensor[B?, N, F]",
    kit::Independent<"N", "F">>;

using Splat2d = kit::Op<
    "cppcuda::spline_splat2d(Tensor values[B?, N, F], Tensor points[B?, N, 2] keep_wide, SymInt[2] size[H, W], "
    "int order=3, str border=\"mirror\") -> Tensor[B?, H, W, F]",
    kit::Independent<"N", "F">>;
using Splat3d = kit::Op<
    "cppcuda::spline_splat3d(Tensor values[B?, N, F], Tensor points[B?, N, 3] keep_wide, SymInt[3] size[D, H, W], "
    "int order=3, str border=\"mirror\") -> Tensor[B?, D, H, W, F]",
    kit::Independent<"N", "F">>;

// The operators and names that formulas of interpolation use. The corners of a point are the coefficients that it
// depends on.
template <class Sample, class Adjoint>
struct Family {
  using Forward = Sample;
  using Splat = Adjoint;
  using Backward = interpolation::Backward<Forward, "input">;
  using DoubleBackward = interpolation::DoubleBackward<Backward, "input", interpolation::DerivativeArgument>;
  static constexpr const char *features = "input", *grad_features = "grad(input)", *second = "grad_grad_input";
};

using Image = Family<Sample2d, Splat2d>;
using Volume = Family<Sample3d, Splat3d>;

}  // namespace cppcuda::ops::spline_sample
