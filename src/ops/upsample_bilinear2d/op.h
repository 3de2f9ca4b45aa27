#pragma once

#include "types.h"

namespace cppcuda::ops::upsample_bilinear2d {

using Forward = kit::Op<
    "cppcuda::upsample_bilinear2d(Tensor input[N, C, H, W], SymInt[2] output_size, "
    "str coordinate_transformation_mode=\"half_pixel\", float? scale_h=None, float? scale_w=None) -> Tensor",
    kit::Independent<"N", "C">>;

// The operator is linear: its derivative reads no tensor, only the size of the input. Under vmap a batch becomes more
// images.
using Backward = kit::Op<
    "cppcuda::_upsample_bilinear2d_backward(Tensor grad[N, C, H, W], SymInt[2] input_size, "
    "str coordinate_transformation_mode=\"half_pixel\", float? scale_h=None, float? scale_w=None) -> Tensor",
    kit::Independent<"N", "C">>;

}  // namespace cppcuda::ops::upsample_bilinear2d
