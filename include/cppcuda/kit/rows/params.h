#pragma once

// The arguments of the CUDA kernels of formulas of rows (formula.h). Math contains the attributes.

#include <cstdint>

#include "cppcuda/kit/elementwise/params.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

template <class Math, class T>
struct RowParams {
  void* out[Math::outputs];  // null if it is not requested
  const void* in[Math::inputs];
  int64_t rows;
  int dims;
  Divisor sizes[elementwise_max_dims];  // of the rows' dims; the one with the smallest stride first
  int64_t strides[Math::outputs + Math::inputs][elementwise_max_dims];
  int64_t inner[Math::outputs + Math::inputs];  // from value to value
  Math math;
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
