// The mathematics, for the CPU and CUDA kernels. A is float or double, or a vector of them.
//
// With (x + i y)^m = c_m + i s_m, the solid harmonics of degree l are, for m >= 0 and m > 0,
//
//   R_l^m = Q_l^m c_m        R_l^-m = Q_l^m s_m
//
// where Q_l^m is a polynomial in z and r^2, and r^(l - m) times an associated Legendre function of z / r. R_l^m has
// index l^2 + l + m of a row. The harmonics are orthonormal on the unit sphere and have no Condon-Shortley phase.
#pragma once

#include <cmath>
#include <cstdint>

#include "cppcuda/kit/math/host_device.h"
#include "cppcuda/kit/math/select.h"

namespace sph::ops::spherical_harmonics {

constexpr int max_degree = 20;

// The square root, which the standard library has not at compile time.
constexpr double root(double x) {
  double r = x > 1 ? x : 1;
  for (int i = 0; x > 0 && i < 64; ++i) r = (r + x / r) / 2;
  return x > 0 ? r : 0;
}

// The constants of Q_l^m.
template <class A>
struct Constants {
  // Q_l^m = z' z Q_(l-1)^m - r2 r^2 Q_(l-2)^m, where z' is the member z. Q_m^m is a constant, the member z of l = m.
  A z, r2;
  // d/dz, d/dx and d/dy of a harmonic of degree l + 1 are sums of those of degree l. These are their factors: of R_l^m
  // in the derivatives of R_(l+1)^m along z, and, up to signs, of R_(l+1)^(m+1) and R_(l+1)^(m-1) along x and y.
  A same, above, below;
};

template <class A>
struct Table {
  Constants<A> at[max_degree + 1][max_degree + 1] = {};  // [m][l - m]

  constexpr Table() {
    double start = 1 / root(4 * 3.14159265358979323846);
    for (int m = 0; m <= max_degree; ++m) {
      if (m > 0) start *= root((2. * m + 1) / (2 * m) * (m == 1 ? 2 : 1));  // for m > 0 the norm has a factor of 2
      for (int l = m; l <= max_degree; ++l) {
        const double square = l * l - m * m, next = (2. * l + 3) / (2 * l + 1);
        at[m][l - m] = {
            .z = A(l == m ? start : root((4. * l * l - 1) / square)),
            .r2 = A(l < m + 2 ? 0 : root((2. * l + 1) * ((l - 1) * (l - 1) - m * m) / ((2 * l - 3) * square))),
            .same = A(root(next * ((l + 1) * (l + 1) - m * m))),
            .above = A(root(next * (l + m + 2) * (l + m + 1) * (m == 0 ? 2 : 1)) / 2),
            .below = A(m == 0 ? 0 : root(next * (l - m + 2) * (l - m + 1) * (m == 1 ? 2 : 1)) / 2),
        };
      }
    }
  }
};

template <class A>
struct Point {
  A x, y, z;

  CPPCUDA_HOST_DEVICE A dot(const Point& p) const { return x * p.x + y * p.y + z * p.z; }
  CPPCUDA_HOST_DEVICE Point scaled(const A& factor) const { return {x * factor, y * factor, z * factor}; }
};

// 1 / r, and zero at the origin, which has no direction.
template <class A>
CPPCUDA_HOST_DEVICE A inverse_norm(const Point<A>& p) {
  using cppcuda::kit::select;
  using std::sqrt;
  const A square = p.dot(p);
  return select(A(0) < square, A(1) / sqrt(square), A(0));
}

// The gradient with respect to a point, from that with respect to its direction u.
template <class A>
CPPCUDA_HOST_DEVICE Point<A> project(const Point<A>& grad, const Point<A>& u, const A& inverse_norm) {
  const A along = grad.dot(u);
  return Point<A>{grad.x - along * u.x, grad.y - along * u.y, grad.z - along * u.z}.scaled(inverse_norm);
}

// Calls column(m, c_m, s_m, each) for m = 0 .. degree, where each(f) calls f(l, constants, Q_l^m) for l = m .. degree.
template <class A, class B, class Column>
CPPCUDA_HOST_DEVICE void for_each_column(const Table<B>& table, int degree, const Point<A>& p, Column column) {
  const A square = p.dot(p);
  A c = A(1), s = A(0);
  for (int m = 0; m <= degree; ++m) {
    const Constants<B>* k = table.at[m];
    column(m, c, s, [&](auto f) {
      A before = A(0), q = A(k->z);
      f(m, *k, q);
      for (int l = m + 1; l <= degree; ++l) {
        const A now = A(k[l - m].z) * p.z * q - A(k[l - m].r2) * square * before;
        before = q;
        q = now;
        f(l, k[l - m], q);
      }
    });
    const A turned = p.x * c - p.y * s;
    s = p.x * s + p.y * c;
    c = turned;
  }
}

// store(i, R_i) for all harmonics up to a degree.
template <class A, class B, class Store>
CPPCUDA_HOST_DEVICE void harmonics(const Table<B>& table, int degree, const Point<A>& p, Store store) {
  for_each_column(table, degree, p, [&](int m, A c, A s, auto each) {
    each([&](int l, const Constants<B>&, A q) {
      store(l * l + l + m, q * c);
      if (m > 0) store(l * l + l - m, q * s);
    });
  });
}

// The gradient of the sum of load(i) R_i over all harmonics up to a degree.
template <class A, class B, class Load>
CPPCUDA_HOST_DEVICE Point<A> gradient(const Table<B>& table, int degree, const Point<A>& p, Load load) {
  Point<A> sum{A(0), A(0), A(0)};
  for_each_column(table, degree - 1, p, [&](int m, A c, A s, auto each) {
    A same[2] = {A(0), A(0)}, above[2] = {A(0), A(0)}, below[2] = {A(0), A(0)};  // of m and of -m
    each([&](int l, const Constants<B>& k, A q) {
      const int i = (l + 1) * (l + 1) + l + 1;
      const A of_same = A(k.same) * q, of_above = A(k.above) * q, of_below = A(k.below) * q;
      same[0] += of_same * load(i + m);
      same[1] += of_same * load(i - m);
      above[0] += of_above * load(i + m + 1);
      above[1] += of_above * load(i - m - 1);
      below[0] += of_below * load(i + m - 1);
      below[1] += of_below * load(i - m + 1);
    });
    if (m < 2) below[1] = A(0);  // R^-0 = 0
    sum.x += c * (above[0] - below[0]) + s * (above[1] - below[1]);
    sum.y += c * (above[1] + below[1]) - s * (above[0] + below[0]);
    sum.z += c * same[0] + s * same[1];
  });
  return sum;
}

// store(d, i, the derivative of R_i along axis d), from load(i) = R_i up to degree - 1.
template <class A, class B, class Load, class Store>
CPPCUDA_HOST_DEVICE void partials(const Table<B>& table, int degree, Load load, Store store) {
  for (int l = 0; l <= degree; ++l) {
    for (int m = 0; m <= l; ++m) {
      const int to = l * l + l, from = l * l - l;                                  // R_l^0 and R_(l-1)^0
      A same[2] = {A(0), A(0)}, above[2] = {A(0), A(0)}, below[2] = {A(0), A(0)};  // of m and of -m
      for (int i = 0; i <= (m > 0); ++i) {
        const int sign = i == 0 ? 1 : -1;
        if (m < l) same[i] = A(table.at[m][l - 1 - m].same) * load(from + sign * m);
      }
      if (m + 1 < l) {
        const A k = A(table.at[m + 1][l - 2 - m].below);
        below[0] = k * load(from + m + 1);
        below[1] = k * load(from - m - 1);
      }
      if (m > 0) {
        const A k = A(table.at[m - 1][l - m].above);
        above[0] = k * load(from + m - 1);
        if (m > 1) above[1] = k * load(from - m + 1);
      }
      store(0, to + m, above[0] - below[0]);
      store(1, to + m, A(0) - above[1] - below[1]);
      store(2, to + m, same[0]);
      if (m == 0) continue;
      store(0, to - m, above[1] - below[1]);
      store(1, to - m, above[0] + below[0]);
      store(2, to - m, same[1]);
    }
  }
}

// The transpose of partials: store(i, the sum of load(d, j) dR_j/dR_i along axis d, over d and j).
template <class A, class B, class Load, class Store>
CPPCUDA_HOST_DEVICE void partials_transposed(const Table<B>& table, int degree, Load load, Store store) {
  for (int l = 0; l < degree; ++l) {
    for (int m = 0; m <= l; ++m) {
      const Constants<B>& k = table.at[m][l - m];
      const int to = l * l + l, i = (l + 1) * (l + 1) + l + 1;
      const A same = A(k.same), above = A(k.above), below = A(k.below);
      A sum = same * load(2, i + m) + above * (load(0, i + m + 1) + load(1, i - m - 1));
      if (m > 0) sum += below * (A(0) - load(0, i + m - 1));
      if (m > 1) sum += below * load(1, i - m + 1);
      store(to + m, sum);
      if (m == 0) continue;
      A other = same * load(2, i - m) + above * (load(0, i - m - 1) - load(1, i + m + 1));
      other += below * (A(0) - load(1, i + m - 1));
      if (m > 1) other += below * (A(0) - load(0, i - m + 1));
      store(to - m, other);
    }
  }
}

}  // namespace sph::ops::spherical_harmonics
