#pragma once

// The cells that points are in, and the weights of their corners, for host and device. L points are computed together:
// one on a GPU, several on the CPU, where the compiler turns the loops over them into vectors.
//
// The weight of a corner is a product of one factor per axis. The factors of the near and of the far side of an axis
// add up to 1, so their derivatives differ in sign only.
//
// An operator's lookup.h says in which cell a point is:
//
//   struct Lookup {
//     static constexpr int axes = 3;
//     static constexpr bool is_curved = false;  // whether is_smooth exists; then locate sets the curvature to 0
//     static constexpr bool gives_slopes = false;  // whether out_slopes of GatherParams may be set
//     static constexpr bool has_levels = false;  // whether levels() may be more than 1
//     bool is_smooth;                           // whether factors f are replaced by f^2 (3 - 2 f)
//     int levels() const;                       // each level is a table of its own with its own columns of the output
//     int64_t first_row(int level) const;       // in all rows of the levels' tables
//     int64_t end_row(int level) const;
//     // The cells of the points n .. n + valid - 1 of a batch; those of the remaining lanes may be any.
//     template <class A, int L>
//     void locate(int64_t batch, int64_t n, int valid, int level, const A (&point)[axes][L], Cells<A, axes, L>&) const;
//   };

#include <cstdint>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/unroll.h"

namespace cppcuda::interpolation {

template <class A, int Axes, int L>
struct Cells {
  static constexpr int axes = Axes, corners = 1 << Axes;

  A near[Axes][L], far[Axes][L];
  A slope[Axes][L];      // the derivative of far by the coordinate
  A curvature[Axes][L];  // the second one; only set if the lookup is curved
  // The corner's row in the table; -1 if it has none, then it counts as zeros. A CPU finds more rows at once in 32
  // bits.
  union {
    int64_t row[corners][L];
    int32_t narrow_row[corners][L];
  };
  bool is_narrow = false;

  // Whether a corner is on the far side along an axis. The last axis changes fastest.
  CPPCUDA_HOST_DEVICE static constexpr bool is_far(int corner, int axis) { return corner >> (Axes - 1 - axis) & 1; }

  CPPCUDA_HOST_DEVICE A weight(int corner, int i) const { return product(corner, i, -1, -1); }

  // The derivative of the weight by a coordinate.
  CPPCUDA_HOST_DEVICE A slope_of(int corner, int axis, int i) const {
    return signed_slope(corner, axis, i) * product(corner, i, axis, -1);
  }

  // The derivatives of weight and slope_of in a direction.
  CPPCUDA_HOST_DEVICE A weight_along(int corner, const A (&direction)[Axes][L], int i) const {
    A sum = 0;
    CPPCUDA_UNROLL(4)
    for (int d = 0; d < Axes; ++d) sum += direction[d][i] * slope_of(corner, d, i);
    return sum;
  }
  template <bool Curved>
  CPPCUDA_HOST_DEVICE A slope_along(int corner, int axis, const A (&direction)[Axes][L], int i) const {
    A sum = 0;
    CPPCUDA_UNROLL(4)
    for (int d = 0; d < Axes; ++d) {
      if (d != axis) {
        sum +=
            direction[d][i] * signed_slope(corner, d, i) * signed_slope(corner, axis, i) * product(corner, i, axis, d);
      } else if constexpr (Curved) {
        const A second = is_far(corner, axis) ? curvature[axis][i] : -curvature[axis][i];
        sum += direction[d][i] * second * product(corner, i, axis, -1);
      }
    }
    return sum;
  }

 private:
  CPPCUDA_HOST_DEVICE A signed_slope(int corner, int axis, int i) const {
    return is_far(corner, axis) ? slope[axis][i] : -slope[axis][i];
  }

  // The product of the factors of all axes but two.
  CPPCUDA_HOST_DEVICE A product(int corner, int i, int without, int or_without) const {
    A result = 1;
    CPPCUDA_UNROLL(4)
    for (int d = 0; d < Axes; ++d) {
      if (d != without && d != or_without) result *= is_far(corner, d) ? far[d][i] : near[d][i];
    }
    return result;
  }
};

// How often weights are differentiated by each coordinate, one byte per axis.
struct Order {
  uint32_t bytes = 0;

  CPPCUDA_HOST_DEVICE bool any() const { return bytes != 0; }
  CPPCUDA_HOST_DEVICE int by(int axis) const { return static_cast<int>(bytes >> (8 * axis) & 255); }
};

// The derivative of the factor of the far side, t or t^2 (3 - 2 t), `order` times by the coordinate; t is `far` here,
// and near is 1 - t.
template <bool Smooth, class A>
CPPCUDA_HOST_DEVICE A derivative_of_far(int order, A near, A far, A slope) {
  if (order == 0) return Smooth ? far * far * (3 - 2 * far) : far;
  if (order == 1) return Smooth ? 6 * near * far * slope : slope;
  if (order == 2) return Smooth ? 6 * (near - far) * slope * slope : A(0);
  return Smooth && order == 3 ? -12 * slope * slope * slope : A(0);
}

// Replaces the linear factors by their derivatives or, if Smooth is set, by those of f^2 (3 - 2 f), whose first
// derivative is continuous.
template <bool Smooth, class A, int Axes, int L>
CPPCUDA_HOST_DEVICE void differentiate(Cells<A, Axes, L>& cells, Order order) {
  CPPCUDA_UNROLL(4)
  for (int d = 0; d < Axes; ++d) {
    const int times = order.by(d);
    for (int i = 0; i < L; ++i) {
      const A near = cells.near[d][i], far = cells.far[d][i], slope = cells.slope[d][i];
      cells.far[d][i] = derivative_of_far<Smooth>(times, near, far, slope);
      cells.near[d][i] = times == 0 ? derivative_of_far<Smooth>(0, far, near, slope) : -cells.far[d][i];
      cells.slope[d][i] = derivative_of_far<Smooth>(times + 1, near, far, slope);
      cells.curvature[d][i] = derivative_of_far<Smooth>(times + 2, near, far, slope);
    }
  }
}

// Locates L points, and differentiates the weights.
template <class Lookup, class A, int L>
CPPCUDA_HOST_DEVICE void locate(const Lookup& lookup, int64_t batch, int64_t n, int valid, int level,
                                const A (&point)[Lookup::axes][L], Order order, Cells<A, Lookup::axes, L>& cells) {
  lookup.locate(batch, n, valid, level, point, cells);
  if constexpr (Lookup::is_curved) {
    if (lookup.is_smooth) return order.any() ? differentiate<true>(cells, order) : differentiate<true>(cells, Order());
  }
  if (order.any()) differentiate<false>(cells, order);
}

}  // namespace cppcuda::interpolation
