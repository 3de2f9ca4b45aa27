// The arguments of the kernels, CPU and CUDA: the tensors and outputs in the order of the declaration, then sizes and
// attributes. Outputs are contiguous.
#pragma once

#include <cstdint>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/rows.h"

namespace sph::ops::spherical_harmonics {

namespace kit = cppcuda::kit;

template <class T>
struct ForwardParams {
  kit::RowsOf<T> xyz;
  T* output;  // [rows, size(degree)]
  kit::Rows rows;
  int degree;
  bool normalize;
};

template <class T>
struct BackwardParams {
  kit::RowsOf<T> grad, xyz;
  T* grad_xyz;  // [rows, 3]
  kit::Rows rows;
  int degree;
  bool normalize;
};

template <class T>
struct PartialsParams {
  kit::RowsOf<T> harmonics;
  T* output;  // [rows, 3, size(degree)]
  kit::Rows rows;
  int degree;
};

template <class T>
struct PartialsTransposedParams {
  kit::RowsOf<T> grad;
  T* output;  // [rows, size(degree - 1)]
  kit::Rows rows;
  int degree;
};

// The number of harmonics up to a degree.
CPPCUDA_HOST_DEVICE constexpr int size(int degree) { return (degree + 1) * (degree + 1); }

}  // namespace sph::ops::spherical_harmonics
