#pragma once

#include <cmath>
#include <limits>

#include "cppcuda/kit/loop.h"
#include "cppcuda/kit/math/opmath.h"

namespace second::csr {

namespace kit = cppcuda::kit;

// A feature of a segment: its rows are those from `first` to `last`.
struct Segment {
  int64_t batch, number, feature, first, last;
};

// The steps of the loops below: the features of each segment of each batch.
struct Segments {
  kit::View<const int64_t, 2> indptr;
  int64_t rows, features, count, work;

  CPPCUDA_HOST_DEVICE Segment operator[](int64_t i) const {
    const int64_t of_all = i / features, segments = indptr.sizes[1] - 1, b = of_all / segments, s = of_all % segments;
    const int64_t first = indptr(b, s), last = indptr(b, s + 1);
#if defined(CPPCUDA_DEVICE_CODE)  // the operator checks it on the CPU, with a better message
    if (first < 0 || first > last || last > rows)
      kit::fail_on_device("csr", "indptr must not decrease and be in [0, N]");
#endif
    return {b, s, i % features, first, last};
  }
};

template <class T>
struct Sum : Segments {
  kit::View<const T, 3> src;
  kit::View<T, 3> output;
  bool mean;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const auto [b, s, f, first, last] = (*this)[i];
    kit::opmath<T> sum = 0;
    for (int64_t row = first; row < last; ++row) sum += static_cast<kit::opmath<T>>(src(b, row, f));
    output(b, s, f) = static_cast<T>(mean && last > first ? sum / static_cast<kit::opmath<T>>(last - first) : sum);
  }
};

template <class T>
struct Extreme : Segments {
  kit::View<const T, 3> src;
  kit::View<T, 3> values;
  kit::View<int64_t, 3> rows_of_values;
  bool largest;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const auto [b, s, f, first, last] = (*this)[i];
    int64_t best = first;
    for (int64_t row = first + 1; row < last; ++row) {
      const auto x = static_cast<kit::opmath<T>>(src(b, row, f)), y = static_cast<kit::opmath<T>>(src(b, best, f));
      if (!std::isnan(y) && (std::isnan(x) || (largest ? x > y : x < y))) best = row;
    }
    values(b, s, f) = first < last ? src(b, best, f) : T(0);
    rows_of_values(b, s, f) = first < last ? best : rows;
  }
};

template <class T>
struct Gather : Segments {
  kit::View<const T, 3> src;
  kit::View<T, 3> output;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const auto [b, s, f, first, last] = (*this)[i];
    for (int64_t row = first; row < last; ++row) output(b, row, f) = src(b, s, f);
  }
};

template <class T>
struct Softmax : Segments {
  kit::View<const T, 3> src;
  kit::View<T, 3> output;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    using A = kit::opmath<T>;
    const auto [b, s, f, first, last] = (*this)[i];
    A most = -std::numeric_limits<A>::infinity(), sum = 0;
    for (int64_t row = first; row < last; ++row) {
      const A x = static_cast<A>(src(b, row, f));
      most = x > most ? x : most;
    }
    for (int64_t row = first; row < last; ++row) sum += std::exp(static_cast<A>(src(b, row, f)) - most);
    for (int64_t row = first; row < last; ++row) {
      output(b, row, f) = static_cast<T>(std::exp(static_cast<A>(src(b, row, f)) - most) / sum);
    }
  }
};

}  // namespace second::csr
