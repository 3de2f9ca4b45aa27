#pragma once

// B-splines on a line of coefficients, for host and device.

#include <cmath>
#include <cstdint>
#include <limits>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/unroll.h"

namespace cppcuda::interpolation {

constexpr int max_order = 5, max_taps = max_order + 1;
constexpr int64_t max_coefficients = int64_t{1} << 30;  // so that a place fits into 32 bits

// Calls f(k) for k = begin ... end - 1, at most max_taps. On CUDA every index of an array must be a constant, or the
// array is not in registers.
template <class F>
CPPCUDA_HOST_DEVICE void for_taps(int begin, int end, F f) {
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int k = 0; k < max_taps; ++k) {
    if (k >= begin && k < end) f(k);
  }
#else
  for (int k = begin; k < end; ++k) f(k);
#endif
}

// values[k], for the k of a loop that is not unrolled.
template <class A>
CPPCUDA_HOST_DEVICE A pick(const A (&values)[max_taps], int k) {
#if defined(__CUDA_ARCH__)
  A result = values[0];
#pragma unroll
  for (int i = 1; i < max_taps; ++i) result = k == i ? values[i] : result;
  return result;
#else
  return values[k];
#endif
}

// What coefficients outside of a line of n are; scipy.ndimage has the same names.
enum class Border : int {
  mirror,         // those inside, mirrored at the centres of the first and the last one
  reflect,        // those inside, mirrored at the outer borders
  grid_wrap,      // periodic
  nearest,        // the first or the last one
  grid_constant,  // zeros
};

// The index, in a line of n coefficients, of the one that coefficient i equals. Those outside of grid_constant equal
// none; the caller leaves them out.
CPPCUDA_HOST_DEVICE int64_t place_of(Border border, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (border == Border::nearest) return i < 0 ? 0 : n - 1;
  if (border == Border::mirror) {
    if (n == 1) return 0;
    const int64_t period = 2 * (n - 1), rest = (i < 0 ? -i : i) % period;
    return rest < n ? rest : period - rest;
  }
  const int64_t period = border == Border::reflect ? 2 * n : n, rest = i % period;
  const int64_t positive = rest < 0 ? rest + period : rest;
  return positive < n ? positive : period - 1 - positive;
}

// The order + 1 coefficients that a point depends on along an axis, and the derivatives of their weights.
template <class A>
struct Taps {
  int begin, end;  // taps that exist
  int32_t place[max_taps];
  A weight[3][max_taps];  // differentiated `derivative`, derivative + 1 and derivative + 2 times

  CPPCUDA_HOST_DEVICE bool has(int tap) const { return tap >= begin && tap < end; }

  // weight[k][tap]. It is computed again on CUDA, so that it needs no registers for the others.
  CPPCUDA_HOST_DEVICE A weight_of(int k, int tap) const {
#if defined(__CUDA_ARCH__)
    if (end - begin == 1 && order_ < 0) return k == 0 ? A(1) : A(0);
    A values[max_taps];
    weights(order_, derivative_ + k, u_, values);
    return pick(values, tap);
#else
    return weight[k][tap];
#endif
  }

  // The axis that an image lacks compared with a volume.
  CPPCUDA_HOST_DEVICE void set_missing() {
    order_ = -1;
    begin = 0;
    end = 1;
    place[0] = 0;
    weight[0][0] = 1;
    weight[1][0] = weight[2][0] = 0;
  }

  // A derivative that jumps at a knot is that of the side to the right.
  CPPCUDA_HOST_DEVICE void set(A position, int64_t n, int order, Border border, int derivative, int count) {
    // Knots are at the coefficients if the order is odd, and in the middle between them if it is even.
    const A shifted = order % 2 == 0 ? position + A(0.5) : position, floor = std::floor(shifted);
    const A limit = static_cast<A>(int64_t{1} << 61);
    const bool is_far = border == Border::nearest || border == Border::grid_constant;
    A u = shifted - floor;
    int64_t first = 0;
    if (floor > -limit && floor < limit) {
      first = static_cast<int64_t>(floor) - order / 2;
    } else if (is_far && position == position) {  // infinity, too
      first = position < 0 ? -2 * max_order : n + 2 * max_order;
      u = 0;
    } else {
      u = std::numeric_limits<A>::quiet_NaN();
    }
    order_ = order;
    derivative_ = derivative;
    u_ = u;
    begin = 0;
    end = order + 1;
    if (border == Border::grid_constant) {
      const int64_t missing = -first, rest = n - first;
      begin = static_cast<int>(missing < 0 ? 0 : missing > order + 1 ? order + 1 : missing);
      end = static_cast<int>(rest < begin ? begin : rest > order + 1 ? order + 1 : rest);
    }
    for_taps(begin, end, [&](int k) { place[k] = static_cast<int32_t>(place_of(border, first + k, n)); });
    CPPCUDA_UNROLL(3)
    for (int k = 0; k < 3; ++k) {
      if (k < count) weights(order, derivative + k, u, weight[k]);
    }
  }

 private:
  int order_ = 0, derivative_ = 0;
  A u_ = 0;

  // The weights at u in [0, 1) between two knots, differentiated `times` times, by the recursions of de Boor ("On
  // calculating with B-splines", 1972) for knots at distance 1: b_j of order d is
  // ((u + d - j) b_{j-1} + (j + 1 - u) b_j) / d of order d - 1, and its derivative is b_{j-1} - b_j of order d - 1.
  CPPCUDA_HOST_DEVICE static void weights(int order, int times, A u, A (&b)[max_taps]) {
    const int lower = order - times;
    for_taps(0, max_taps, [&](int j) { b[j] = 0 * u; });
    if (lower < 0) return;
    b[0] = 1 + 0 * u;
    for_taps(1, lower + 1, [&](int d) {
      A saved = 0;
      for_taps(0, d, [&](int j) {
        const A part = b[j] / static_cast<A>(d);
        b[j] = saved + (static_cast<A>(j + 1) - u) * part;
        saved = (u + static_cast<A>(d - 1 - j)) * part;
      });
      b[d] = saved;
    });
    for_taps(lower + 1, order + 1, [&](int) {
      A before = 0;
      for_taps(0, max_taps, [&](int j) {
        const A here = b[j];
        b[j] = before - here;
        before = here;
      });
    });
  }
};

}  // namespace cppcuda::interpolation
