#pragma once

// The input pixels that an output pixel reads along one axis, and the output pixels that read an input pixel. Forward
// and backward both use tap(), so that rounding can neither drop a pixel from a gradient nor count it twice.

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/select.h"

namespace cppcuda::ops::upsample_bilinear2d {

// The modes have their names in ONNX Resize.
enum class Mode { half_pixel, align_corners, asymmetric };

// The two input pixels that an output pixel reads. If its position coincides with a pixel, both are that pixel, with
// weights 1 and 0.
template <class A, class Index = int64_t>
struct Tap {
  Index lower, upper;
  A lower_weight, upper_weight;

  // The weight of input pixel i, lower <= i <= upper.
  CPPCUDA_HOST_DEVICE A weight(Index i) const { return i == lower ? lower_weight : upper_weight; }
};

// The value between two pixels. A pixel of weight 1 is copied, because 0 * value would be NaN for an infinite value,
// and the sum would lose the sign of -0. A is a number or a vector. fma gives the same bits in every inlined copy.
template <class A>
CPPCUDA_HOST_DEVICE A interpolate(A lower, A upper, A lower_weight, A upper_weight) {
  using kit::select;
  using std::fma;
  return select(upper_weight == A(0), lower, fma(upper_weight, upper, lower_weight * lower));
}

// The initial value of a sum of `terms` products: -0 + x is x, even for x = -0. A sum without terms is 0.
template <class A>
CPPCUDA_HOST_DEVICE A sum_start(int64_t terms) {
  return terms > 0 ? A(-0.0) : A(0);
}

// The pixels first .. last - 1.
template <class Index = int64_t>
struct Range {
  Index first, last;
};

// A is the type of coordinates, Index the type of pixel indices.
template <class A, class Index = int64_t>
struct Axis {
  Index in, out;
  A scale;   // input pixels per output pixel
  A offset;  // the position of a pixel minus its index

  template <class Other>
  CPPCUDA_HOST_DEVICE Axis<A, Other> with_index() const {
    return {static_cast<Other>(in), static_cast<Other>(out), scale, offset};
  }

  // The position in the input, in pixels. fma gives the same bits with and without contraction.
  CPPCUDA_HOST_DEVICE A source(Index o) const {
    const A x = std::fma(static_cast<A>(o) + offset, scale, -offset);
    return x > A(0) ? x : A(0);
  }

  CPPCUDA_HOST_DEVICE Tap<A, Index> tap(Index o) const {
    const A x = source(o);
    // Compare before converting, because with a given scale x may be out of range.
    const Index lower = x < static_cast<A>(in - 1) ? static_cast<Index>(x) : in - 1;
    const A weight = x - static_cast<A>(lower);
    if (lower == in - 1 || weight == A(0)) return {lower, lower, A(1), A(0)};
    return {lower, lower + 1, A(1) - weight, weight};
  }

  // The outputs that read input pixel i. lower and upper are non-decreasing functions of the output.
  CPPCUDA_HOST_DEVICE Range<Index> outputs_of(Index i) const {
    return {i > 0 ? walk(near(i - 1), [this, i](Index o) { return tap(o).upper >= i; }) : 0,
            i < in - 1 ? walk(near(i + 1), [this, i](Index o) { return tap(o).lower > i; }) : out};
  }

  // The same, starting from those of pixel i - 1.
  CPPCUDA_HOST_DEVICE Range<Index> outputs_of(Index i, const Range<Index>& previous) const {
    return {walk(previous.first, [this, i](Index o) { return tap(o).upper >= i; }),
            i < in - 1 ? walk(previous.last, [this, i](Index o) { return tap(o).lower > i; }) : out};
  }

 private:
  // About the first output whose position is x or more.
  CPPCUDA_HOST_DEVICE Index near(Index x) const {
    const A o = (static_cast<A>(x) + offset) * (1 / scale) - offset;  // one division for several searches
    return !(o < static_cast<A>(out)) ? out : o > A(0) ? static_cast<Index>(o) : 0;
  }

  // The first output for which `reached` holds, searched for from output o.
  template <class F>
  CPPCUDA_HOST_DEVICE Index walk(Index o, F reached) const {
    while (o < out && !reached(o)) ++o;
    while (o > 0 && reached(o - 1)) --o;
    return o;
  }
};

// scale: output pixels per input pixel; if given, it is used unchanged.
template <class A>
Axis<A> make_axis(Mode mode, int64_t in, int64_t out, std::optional<double> scale) {
  if (mode == Mode::align_corners) {
    return {in, out, out > 1 ? static_cast<A>(in - 1) / static_cast<A>(out - 1) : A(0), A(0)};
  }
  // The limit keeps 0 * scale from being NaN.
  const double limit = std::numeric_limits<A>::max();
  return {in, out,
          scale ? static_cast<A>(1 / *scale < limit ? 1 / *scale : limit) : static_cast<A>(in) / static_cast<A>(out),
          mode == Mode::half_pixel ? A(0.5) : A(0)};
}

}  // namespace cppcuda::ops::upsample_bilinear2d
