#pragma once

#include "core/shape.h"
#include "ops/lltm_cell/schema.h"

namespace cppcuda::ops::lltm_cell {

// hy, cy and gates, for Forward too, whose kernels compute the gates as well.
inline std::array<core::Output, 3> outputs(const char* op, const Tensor& input, const Tensor& weight,
                                           const Tensor& bias, const Tensor& hx, const Tensor& cx) {
  return core::Shape<Cell>::outputs_as(op, input, weight, bias, hx, cx);
}

inline constexpr auto cell_shape = core::Shape<Cell>::outputs;
inline constexpr auto backward_shape = core::Shape<Backward>::outputs;

}  // namespace cppcuda::ops::lltm_cell
