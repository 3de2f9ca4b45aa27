#pragma once

#include <cstdint>

#include "cppcuda/kit/loop.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/unroll.h"
#include "interpolation/splines.h"

namespace cppcuda::ops::spline_prefilter {

using interpolation::Border;

// Copies the rows [W, F] of a volume, of any strides, to contiguous memory.
template <class T>
struct CopyLoop {
  kit::View<const T, 5> input;  // [B, D, H, W, F]
  kit::opmath<T>* output;
  int64_t count, work;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t y = i % input.sizes[2], z = i / input.sizes[2] % input.sizes[1],
                  b = i / input.sizes[2] / input.sizes[1];
    kit::opmath<T>* to = output + i * work;
    for (int64_t x = 0; x < input.sizes[3]; ++x) {
      for (int64_t f = 0; f < input.sizes[4]; ++f) *to++ = static_cast<kit::opmath<T>>(input(b, z, y, x, f));
    }
  }
};

// Filters lines in place: the samples s of a B-spline become its coefficients c. For each pole z of the filter
//
//   b[i] = s[i] + z b[i - 1]          c[i] = z (c[i + 1] - b[i])
//
// (M. Unser, A. Aldroubi and M. Eden, "B-spline signal processing", 1993, section II.B). Line l begins at the value
// l % step + l / step * length * step of contiguous memory. A step of the loop takes `together` lines.
//
// The filter is symmetric for lines that are mirrored at their outer borders, and for periodic ones. If they are
// mirrored at the centres of their ends, a period has the ends once and the values between them twice: then it is
// symmetric in a product in which these have the weights 1/2 and 1, which its adjoint applies.
template <class A>
struct FilterLoop {
  static constexpr int most = 16;

  A* data = nullptr;
  int64_t lines = 0, length = 0, step = 0, together = 1;  // together: 1 or, on the CPU, `most`
  int poles = 0;
  A pole[2] = {}, gain = 1;
  Border border = Border::mirror;  // or reflect, or grid_wrap
  bool is_adjoint = false;
  int64_t count = 0, work = 0;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t first = i * together, here = lines - first < together ? lines - first : together;
#if !defined(__CUDA_ARCH__)
    if (here == most && first % step + most <= step) return filter<most>(line(first));
#endif
    for (int64_t l = first; l < first + here; ++l) filter<1>(line(l));
  }

 private:
  CPPCUDA_HOST_DEVICE A* line(int64_t l) const { return data + l % step + l / step * length * step; }

  // Filters L neighbouring lines.
  template <int L>
  CPPCUDA_HOST_DEVICE void filter(A* first) const {
    A b[L];
    const bool has_weights = is_adjoint && border == Border::mirror;
    if (has_weights) multiply_ends<L>(first, 2);
    CPPCUDA_UNROLL(2)
    for (int k = 0; k < 2; ++k) {
      if (k >= poles) break;
      const A z = pole[k], scale = k == 0 ? gain : A(1);
      const auto value = [&](int64_t i, int l) { return first[i * step + l] * scale; };
      // b[0] is a sum over the samples before, which repeat after `period`.
      const int64_t period = border == Border::mirror    ? 2 * length - 2
                             : border == Border::reflect ? 2 * length
                                                         : length;
      for (int l = 0; l < L; ++l) b[l] = 0;
      A power = 1;
      for (int64_t i = 0; i < period; ++i) {
        const int64_t from = interpolation::place_of(border, -i, length);
        for (int l = 0; l < L; ++l) b[l] += power * value(from, l);
        power *= z;
        if (power * power < A(1e-37)) break;  // the rest is too small, and so is the next period
      }
      for (int l = 0; l < L; ++l) first[l] = b[l] = b[l] / (1 - power);
      for (int64_t i = 1; i < length; ++i) {
        for (int l = 0; l < L; ++l) first[i * step + l] = b[l] = value(i, l) + z * b[l];
      }
      A* const last = first + (length - 1) * step;
      if (border == Border::mirror) {
        for (int l = 0; l < L; ++l) b[l] = z / (z * z - 1) * (last[l] + z * last[l - step]);
      } else if (border == Border::reflect) {
        for (int l = 0; l < L; ++l) b[l] = z / (z - 1) * last[l];
      } else {
        for (int l = 0; l < L; ++l) b[l] = 0;
        power = z;
        for (int64_t i = 0; i < length; ++i) {
          const A* const from = i == 0 ? last : first + (i - 1) * step;
          for (int l = 0; l < L; ++l) b[l] -= power * from[l];
          power *= z;
          if (power * power < A(1e-37)) break;
        }
        for (int l = 0; l < L; ++l) b[l] /= 1 - power / z;
      }
      for (int l = 0; l < L; ++l) last[l] = b[l];
      for (int64_t i = length - 2; i >= 0; --i) {
        for (int l = 0; l < L; ++l) first[i * step + l] = b[l] = z * (b[l] - first[i * step + l]);
      }
    }
    if (has_weights) multiply_ends<L>(first, A(0.5));
  }

  template <int L>
  CPPCUDA_HOST_DEVICE void multiply_ends(A* first, A factor) const {
    for (int l = 0; l < L; ++l) {
      first[l] *= factor;
      first[(length - 1) * step + l] *= factor;
    }
  }
};

}  // namespace cppcuda::ops::spline_prefilter
