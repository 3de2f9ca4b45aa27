#pragma once

// The arguments of the CUDA kernels of elementwise operators.

#include <cstdint>

#include "core/divide.h"

namespace cppcuda::core {

// Tensors whose elements lie in the same order, without gaps.
template <class T, int Inputs>
struct DenseParams {
  T* out;
  const T* in[Inputs];
  int64_t count;
};

constexpr int pointwise_max_dims = 16;  // after merging

template <class T, int Inputs>
struct StridedParams {
  T* out;
  const T* in[Inputs];
  int64_t count;
  int dims;
  Divisor sizes[pointwise_max_dims];  // the fastest first
  int64_t out_strides[pointwise_max_dims];
  int64_t in_strides[Inputs][pointwise_max_dims];
};

}  // namespace cppcuda::core
