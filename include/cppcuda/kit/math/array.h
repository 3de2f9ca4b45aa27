#pragma once

// A few values of a formula that belong together: a vector, Array<A, 3>, or a matrix, Array<A, 3, 3>. Its loops are
// unrolled, because in a loop gcc would leave the values in memory.

#include <utility>

#include "cppcuda/kit/math/dual.h"
#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Columns is 0 for a vector.
template <class A, int Rows, int Columns = 0>
struct Array {
  static constexpr int count = Columns == 0 ? Rows : Rows * Columns;

  A values[count];

  // Values f(0), f(1), ..., with the indices as constants; a matrix has its rows one after another.
  template <class F>
  CPPCUDA_HOST_DEVICE static Array of(F f) {
    return of(f, std::make_integer_sequence<int, count>());
  }

  CPPCUDA_HOST_DEVICE const A& operator[](int i) const { return values[i]; }
  CPPCUDA_HOST_DEVICE A& operator[](int i) CPPCUDA_LAMBDA { return values[i]; }
  CPPCUDA_HOST_DEVICE const A& operator()(int row, int column) const { return values[row * Columns + column]; }
  CPPCUDA_HOST_DEVICE A& operator()(int row, int column) { return values[row * Columns + column]; }

  friend CPPCUDA_HOST_DEVICE Array operator-(const Array& a) {
    return of([&](int i) CPPCUDA_LAMBDA { return -a[i]; });
  }
  friend CPPCUDA_HOST_DEVICE Array operator+(const Array& a, const Array& b) {
    return of([&](int i) CPPCUDA_LAMBDA { return a[i] + b[i]; });
  }
  friend CPPCUDA_HOST_DEVICE Array operator-(const Array& a, const Array& b) {
    return of([&](int i) CPPCUDA_LAMBDA { return a[i] - b[i]; });
  }
  friend CPPCUDA_HOST_DEVICE Array operator*(const A& factor, const Array& a) {
    return of([&](int i) CPPCUDA_LAMBDA { return factor * a[i]; });
  }
  friend CPPCUDA_HOST_DEVICE Array operator*(const Array& a, const A& factor) { return factor * a; }
  friend CPPCUDA_HOST_DEVICE Array operator/(const Array& a, const A& divisor) {
    return of([&](int i) CPPCUDA_LAMBDA { return a[i] / divisor; });
  }

 private:
  template <class F, int... I>
  CPPCUDA_HOST_DEVICE static Array of(F f, std::integer_sequence<int, I...>) {
    return {{f(I)...}};
  }
};

// The sum of the products of values in the same places.
template <class A, int Rows, int Columns>
CPPCUDA_HOST_DEVICE A dot(const Array<A, Rows, Columns>& a, const Array<A, Rows, Columns>& b) {
  return [&]<int... I>(std::integer_sequence<int, 0, I...>) CPPCUDA_LAMBDA {
    A sum = a[0] * b[0];
    ((sum = detail::multiply_add(a[I], b[I], sum)), ...);
    return sum;
  }(std::make_integer_sequence<int, Array<A, Rows, Columns>::count>());
}

template <class A>
CPPCUDA_HOST_DEVICE Array<A, 3> cross(const Array<A, 3>& a, const Array<A, 3>& b) {
  const auto minor = [&](int i, int j) CPPCUDA_LAMBDA { return detail::multiply_add(a[i], b[j], A(-(a[j] * b[i]))); };
  return {minor(1, 2), minor(2, 0), minor(0, 1)};
}

template <class A, int Rows, int Columns>
CPPCUDA_HOST_DEVICE Array<A, Columns, Rows> transpose(const Array<A, Rows, Columns>& a) {
  return Array<A, Columns, Rows>::of([&](int i) CPPCUDA_LAMBDA { return a(i % Rows, i / Rows); });
}

// The products of a matrix with a vector and with a matrix.
template <class A, int Rows, int Columns>
CPPCUDA_HOST_DEVICE Array<A, Rows> multiply(const Array<A, Rows, Columns>& a, const Array<A, Columns>& x) {
  const auto row = [&](int i)
                       CPPCUDA_LAMBDA { return Array<A, Columns>::of([&](int k) CPPCUDA_LAMBDA { return a(i, k); }); };
  return Array<A, Rows>::of([&](int i) CPPCUDA_LAMBDA { return dot(row(i), x); });
}
template <class A, int Rows, int Inner, int Columns>
CPPCUDA_HOST_DEVICE Array<A, Rows, Columns> multiply(const Array<A, Rows, Inner>& a,
                                                     const Array<A, Inner, Columns>& b) {
  const auto row = [&](int i)
                       CPPCUDA_LAMBDA { return Array<A, Inner>::of([&](int k) CPPCUDA_LAMBDA { return a(i, k); }); };
  const auto column = [&](int j)
                          CPPCUDA_LAMBDA { return Array<A, Inner>::of([&](int k) CPPCUDA_LAMBDA { return b(k, j); }); };
  return Array<A, Rows, Columns>::of([&](int i) CPPCUDA_LAMBDA { return dot(row(i / Columns), column(i % Columns)); });
}

template <class A>
CPPCUDA_HOST_DEVICE A determinant(const Array<A, 2, 2>& a) {
  return detail::multiply_add(a(0, 0), a(1, 1), A(-(a(0, 1) * a(1, 0))));
}
template <class A>
CPPCUDA_HOST_DEVICE A determinant(const Array<A, 3, 3>& a) {
  const auto row = [&](int i) CPPCUDA_LAMBDA { return Array<A, 3>{a(i, 0), a(i, 1), a(i, 2)}; };
  return dot(row(0), cross(row(1), row(2)));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
