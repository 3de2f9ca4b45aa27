#pragma once

// The arguments of the CUDA kernels of elementwise operators. Math contains the attributes.

#include <cstdint>

#include "cppcuda/kit/math/divide.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// For dense tensors with the same memory order. The pointer of an output that is not requested is null.
template <class Math, class T>
struct DenseParams {
  T* out[Math::outputs];
  const T* in[Math::inputs];
  int64_t count;
  [[no_unique_address]] Math math;
};

constexpr int elementwise_max_dims = 16;  // after merging

template <class Math, class T>
struct StridedParams {
  T* out[Math::outputs];
  const T* in[Math::inputs];
  int64_t count;
  int dims;
  Divisor sizes[elementwise_max_dims];  // the dim with the smallest stride first
  int64_t out_strides[Math::outputs][elementwise_max_dims];
  int64_t in_strides[Math::inputs][elementwise_max_dims];
  [[no_unique_address]] Math math;
};

// For formulas of points (points.h). The strides are those of the outputs, followed by the inputs.
template <class Math, class T>
struct PointParams {
  T* out[Math::outputs];
  const T* in[Math::inputs];
  int64_t count;
  int dims;
  Divisor sizes[elementwise_max_dims];  // as above
  int64_t strides[Math::outputs + Math::inputs][elementwise_max_dims];
  int64_t own_strides[Math::outputs + Math::inputs][2];  // of the dims of a point's values
  [[no_unique_address]] Math math;
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
