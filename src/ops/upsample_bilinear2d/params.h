#pragma once

// The arguments of the kernels, CPU and CUDA: raw pointers, strides in elements, sizes.

#include <cstdint>

#include "cppcuda/kit/math/opmath.h"
#include "ops/upsample_bilinear2d/math.h"

namespace cppcuda::ops::upsample_bilinear2d {

struct Strides {
  int64_t n, c, h, w;
};

// Forward reads the input and writes the output; backward reads the output's gradient and writes the input's.
template <class T>
struct Params {
  const T* source;
  T* target;  // dense, [N, C, H, W], or [N, H, W, C] in memory if channels_last
  int64_t batch, channels;
  Strides strides;  // of source
  bool channels_last;
  Axis<kit::opmath<T>> y, x;  // from input to output, in both directions
};

template <class T>
struct ForwardParams : Params<T> {};

template <class T>
struct BackwardParams : Params<T> {};

}  // namespace cppcuda::ops::upsample_bilinear2d
