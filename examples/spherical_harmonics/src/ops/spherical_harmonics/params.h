// The arguments of the kernels, CPU and CUDA: raw pointers, strides in elements, sizes. Outputs are contiguous.
#pragma once

#include <cstdint>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/rows.h"

namespace sph::ops::spherical_harmonics {

namespace kit = cppcuda::kit;

// A tensor [B?, N, F] or [B?, N, 3, F]. Any strides: an expanded tensor has strides of 0.
template <class T>
struct Operand {
  const T* data;
  kit::RowStride strides;
  int64_t step;      // between the values of a row
  int64_t axis = 0;  // between the three parts of a row

  CPPCUDA_HOST_DEVICE const T* row(const kit::Rows& rows, int64_t r) const { return data + strides.offset(rows, r); }
};

template <class T>
struct ForwardParams {
  Operand<T> xyz;
  T* output;  // [rows, size(degree)]
  kit::Rows rows;
  int degree;
  bool normalize;
};

template <class T>
struct BackwardParams {
  Operand<T> grad, xyz;
  T* grad_xyz;  // [rows, 3]
  kit::Rows rows;
  int degree;
  bool normalize;
};

template <class T>
struct PartialsParams {
  Operand<T> harmonics;
  T* output;  // [rows, 3, size(degree)]
  kit::Rows rows;
  int degree;
};

template <class T>
struct PartialsTransposedParams {
  Operand<T> grad;
  T* output;  // [rows, size(degree - 1)]
  kit::Rows rows;
  int degree;
};

// The number of harmonics up to a degree.
CPPCUDA_HOST_DEVICE constexpr int size(int degree) { return (degree + 1) * (degree + 1); }

}  // namespace sph::ops::spherical_harmonics
