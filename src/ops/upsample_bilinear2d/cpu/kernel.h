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

// The output pixels that read each input pixel along x, padded with placeholders of weight 0 or -0 to a whole block and
// to max_readers per pixel. The readers of pixel i are first[i / block] + outputs[k * stride + i], k < max_readers.
template <class A>
struct ColumnReaders {
  int64_t in, out, max_readers, stride;
  const int64_t* first;
  const int32_t* outputs;
  const A* weights;
};

// Operations on one row of an image. T is the type of the tensors, A that of intermediate results. depth is the number
// of adjacent values per pixel: 1 in NCHW, the number of channels in channels_last.
template <class Isa, class T>
struct ImageRowKernel {
  using A = kit::opmath<T>;

  // Forward, NCHW: interpolates a row of the input, whose pixels are `step` apart, along x; then two results along y.
  static void stretch(const Columns<A>& columns, const T* row, int64_t step, A* out);
  static void blend(const A* lower, const A* upper, A lower_weight, A upper_weight, int64_t n, T* out,
                    bool nontemporal);

  // Forward, channels_last: computes a row of the output from two rows of the input.
  static void write_pixels(const Tap<A>* columns, int64_t width, const T* lower, const T* upper, const Tap<A>& row,
                           int64_t pixel_step, int64_t channel_step, int64_t depth, T* out, bool nontemporal);

  // Backward: the weighted sum of `rows` rows [width, depth] of the output's gradient, which are row_step apart. The
  // next `later` rows are prefetched.
  static void sum_rows(const T* grad, int64_t row_step, const A* weights, int64_t rows, int64_t later,
                       int64_t pixel_step, int64_t channel_step, int64_t width, int64_t depth, A* sums);

  // Then the weighted sums along x, which are a row of the input's gradient.
  static void gather(const ColumnReaders<A>& readers, const A* sums, T* out);
  static void gather_pixels(const Range<>* outputs, const int64_t* first_weight, const A* weights, int64_t width,
                            const A* sums, int64_t depth, T* out, bool nontemporal);
};

}  // namespace cppcuda::ops::upsample_bilinear2d
