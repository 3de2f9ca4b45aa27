#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"
#include "cppcuda/kit/math/opmath.h"
#include "ops/upsample_bilinear2d/math.h"

namespace cppcuda::ops::upsample_bilinear2d {

// Pixels per block. Indices are 32-bit offsets from the first index of their block.
inline constexpr int block = 16;

// The taps of all output pixels along x, padded to a whole block. Pixel o reads first[o / block] + lower[o] and +
// upper[o].
template <class A>
struct Columns {
  int64_t in, out;
  const int64_t* first;
  const int32_t *lower, *upper;
  const A *lower_weight, *upper_weight;
};

// The output pixels that read each input pixel along x, padded to a whole block and to `most` readers per pixel with
// placeholders of weight 0 or -0. Pixel i is read by first[i / block] + outputs[k * stride + i], k < most.
template <class A>
struct ColumnReaders {
  int64_t in, out, most, stride;
  const int64_t* first;
  const int32_t* outputs;
  const A* weights;
};

// Operations on one row of an image. T is the type of the tensors, A the type between the two directions. depth is the
// number of adjacent values per pixel: 1 in NCHW, the channels in channels_last.
template <class Isa, class T>
struct RowKernel {
  using A = kit::opmath<T>;

  // Forward, NCHW: interpolates a row of the input (its pixels a step apart) along x, then two such rows along y.
  static void stretch(const Columns<A>& columns, const T* row, int64_t step, A* out);
  static void blend(const A* lower, const A* upper, A lower_weight, A upper_weight, int64_t n, T* out,
                    bool nontemporal);

  // Forward, channels_last: a row of the output from two rows of the input, with the strides of pixels and channels.
  static void write_pixels(const Tap<A>* columns, int64_t width, const T* lower, const T* upper, const Tap<A>& row,
                           int64_t pixel_step, int64_t channel_step, int64_t depth, T* out, bool nontemporal);

  // Backward: the weighted sum of `rows` rows of the output's gradient, row_step apart, [width, depth]. `later` more
  // rows will be read next.
  static void sum_rows(const T* grad, int64_t row_step, const A* weights, int64_t rows, int64_t later,
                       int64_t pixel_step, int64_t channel_step, int64_t width, int64_t depth, A* sums);

  // Sums such a row along x, into a row of the input's gradient.
  static void gather(const ColumnReaders<A>& readers, const A* sums, T* out);
  static void gather_pixels(const Range<>* outputs, const int64_t* first_weight, const A* weights, int64_t width,
                            const A* sums, int64_t depth, T* out, bool nontemporal);
};

}  // namespace cppcuda::ops::upsample_bilinear2d
