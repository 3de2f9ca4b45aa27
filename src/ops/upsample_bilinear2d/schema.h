#pragma once

#include "core/op.h"

namespace cppcuda::ops::upsample_bilinear2d {

using Forward =
    core::Op<"cppcuda::upsample_bilinear2d", Tensor(const Tensor& input, c10::SymIntArrayRef output_size,
                                                    std::string_view coordinate_transformation_mode,
                                                    std::optional<double> scale_h, std::optional<double> scale_w)>;

// The op is linear: its derivative reads no tensor, only the size of the input.
using Backward =
    core::Op<"cppcuda::_upsample_bilinear2d_backward",
             Tensor(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view coordinate_transformation_mode,
                    std::optional<double> scale_h, std::optional<double> scale_w)>;

}  // namespace cppcuda::ops::upsample_bilinear2d
