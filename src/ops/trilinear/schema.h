#pragma once

#include "core/op.h"

namespace cppcuda::ops::trilinear {

using Forward = core::Op<"cppcuda::trilinear", Tensor(const Tensor& feats, const Tensor& points)>;

// feats may be missing when only its own gradient is asked for, which does not read it.
using Backward = core::Op<"cppcuda::_trilinear_backward",
                          std::tuple<Tensor, Tensor>(const Tensor& grad, const OptionalTensor& feats,
                                                     const Tensor& points, c10::List<bool> output_mask)>;

}  // namespace cppcuda::ops::trilinear
