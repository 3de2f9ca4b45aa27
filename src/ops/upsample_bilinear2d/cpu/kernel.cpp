#include "ops/upsample_bilinear2d/cpu/kernel.h"

#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/vec.h"

namespace cppcuda::ops::upsample_bilinear2d {
inline namespace CPPCUDA_ISA {

using kit::for_groups;
using kit::for_vectors;
using kit::Vec;
using kit::write_vectors;

// to[i] = sum over r of weights[r] * from[r * step + i]. With Nontemporal, n must be a multiple of the number of lanes.
template <bool Nontemporal, class A, class T, class U>
CPPCUDA_INLINE void weigh_rows(const A* weights, const T* from, int64_t step, int64_t rows, int64_t n, U* to) {
  using V = Vec<A>;
  const V zero(sum_start<A>(rows));
  for_groups<V, 4>(n, [&]<int registers>(int64_t i, std::integral_constant<int, registers>, auto count) {
    V sums[registers];
    for (V& sum : sums) sum = zero;
    for (int64_t r = 0; r < rows; ++r) {
      const V weight(weights[r]);
      for (int k = 0; k < registers; ++k) sums[k] += weight * V::load(from + r * step + i + k * V::lanes, count);
    }
    for (int k = 0; k < registers; ++k) {
      Nontemporal ? sums[k].store_nontemporal(to + i + k * V::lanes) : sums[k].store(to + i + k * V::lanes, count);
    }
  });
}

}  // namespace CPPCUDA_ISA

template <class Isa, class T>
CPPCUDA_FLATTEN void ImageRowKernel<Isa, T>::stretch(const Columns<A>& columns, const T* row, int64_t step, A* out) {
  using V = Vec<A>;
  for (int64_t x = 0; x < columns.out; x += V::lanes) {
    const T* from = row + columns.first[x / block] * step;
    auto pixels = [&](const int32_t* indices) {
      if (step == 1) return V::gather(from, indices, columns.in - columns.first[x / block]);
      T values[V::lanes];
      for (int i = 0; i < V::lanes; ++i) __builtin_memcpy(values + i, from + indices[i] * step, sizeof(T));
      return V::load(values);
    };
    const V at_lower = pixels(columns.lower + x), at_upper = pixels(columns.upper + x);
    interpolate(at_lower, at_upper, V::load(columns.lower_weight + x), V::load(columns.upper_weight + x))
        .store(out + x);
  }
}

template <class Isa, class T>
CPPCUDA_FLATTEN void ImageRowKernel<Isa, T>::blend(const A* lower, const A* upper, A lower_weight, A upper_weight,
                                                   int64_t n, T* out, bool nontemporal) {
  using V = Vec<A>;
  const V a(lower_weight), b(upper_weight);
  auto write = [&](auto row) {
    nontemporal ? write_vectors<V, true>(out, n, row) : write_vectors<V, false>(out, n, row);
  };
  if (upper_weight == 0) {
    write([&](int64_t x, auto count) { return V::load(lower + x, count); });
  } else {
    write([&](int64_t x, auto count) { return fma(b, V::load(upper + x, count), a * V::load(lower + x, count)); });
  }
}

template <class Isa, class T>
CPPCUDA_FLATTEN void ImageRowKernel<Isa, T>::write_pixels(const Tap<A>* columns, int64_t width, const T* lower,
                                                          const T* upper, const Tap<A>& row, int64_t pixel_step,
                                                          int64_t channel_step, int64_t depth, T* out,
                                                          bool nontemporal) {
  using V = Vec<A>;
  const V top(row.lower_weight), bottom(row.upper_weight);
  auto write = [&]<bool Unit, bool Nontemporal>() {
    for (int64_t x = 0; x < width; ++x, out += depth) {
      const Tap<A>& column = columns[x];
      const T* corners[4] = {lower + column.lower * pixel_step, lower + column.upper * pixel_step,
                             upper + column.lower * pixel_step, upper + column.upper * pixel_step};
      const V left(column.lower_weight), right(column.upper_weight);
      auto corner = [&](int i, int64_t c, auto count) {
        return Unit ? V::load(corners[i] + c, count) : V::load(corners[i] + c * channel_step, channel_step, count);
      };
      // This loop is separate because the select in interpolate() would make the other one a quarter slower in cache
      // (AVX2, AMD EPYC).
      if (column.upper_weight == 0 || row.upper_weight == 0) [[unlikely]] {
        for_vectors<V>(depth, [&](int64_t c, auto n) {
          const V above = interpolate(corner(0, c, n), corner(1, c, n), left, right);
          const V below = interpolate(corner(2, c, n), corner(3, c, n), left, right);
          interpolate(above, below, top, bottom).store(out + c, n);
        });
        continue;
      }
      write_vectors<V, Nontemporal>(out, depth, [&](int64_t c, auto n) {
        const V above = fma(right, corner(1, c, n), left * corner(0, c, n));
        const V below = fma(right, corner(3, c, n), left * corner(2, c, n));
        return fma(bottom, below, top * above);
      });
    }
  };
  channel_step != 1 ? write.template operator()<false, false>()
  : nontemporal     ? write.template operator()<true, true>()
                    : write.template operator()<true, false>();
}

template <class Isa, class T>
CPPCUDA_FLATTEN void ImageRowKernel<Isa, T>::sum_rows(const T* grad, int64_t row_step, const A* weights, int64_t rows,
                                                      int64_t later, int64_t pixel_step, int64_t channel_step,
                                                      int64_t width, int64_t depth, A* sums) {
  using V = Vec<A>;
  auto values = [&](int64_t n, int64_t step, const T* from, A* to) {
    if (step == 1) {
      weigh_rows<false>(weights, from, row_step, rows, n, to);
      for (int64_t r = rows; r < rows + later; ++r) kit::prefetch(from + r * row_step, n * sizeof(T));
      return;
    }
    for_vectors<V>(n, [&](int64_t i, auto count) {
      V sum(sum_start<A>(rows));
      for (int64_t r = 0; r < rows; ++r) sum += V(weights[r]) * V::load(from + r * row_step + i * step, step, count);
      sum.store(to + i, count);
    });
  };
  if (pixel_step == depth && (depth == 1 || channel_step == 1)) return values(width * depth, 1, grad, sums);
  if (depth == 1) return values(width, pixel_step, grad, sums);
  for (int64_t x = 0; x < width; ++x) values(depth, channel_step, grad + x * pixel_step, sums + x * depth);
}

template <class Isa, class T>
CPPCUDA_FLATTEN void ImageRowKernel<Isa, T>::gather(const ColumnReaders<A>& readers, const A* sums, T* out) {
  using V = Vec<A>;
  for_vectors<V>(readers.in, [&](int64_t x, auto count) {
    const A* from = sums + readers.first[x / block];
    V sum(A(-0.0));
    for (int64_t k = 0; k < readers.max_readers; ++k) {
      const V weight = V::load(readers.weights + k * readers.stride + x);
      const V value = V::gather(from, readers.outputs + k * readers.stride + x, readers.out - readers.first[x / block]);
      sum += select(weight == V(0), weight, weight * value);  // a placeholder's value may be infinite
    }
    sum.store(out + x, count);
  });
}

template <class Isa, class T>
CPPCUDA_FLATTEN void ImageRowKernel<Isa, T>::gather_pixels(const Range<>* outputs, const int64_t* first_weight,
                                                           const A* weights, int64_t width, const A* sums,
                                                           int64_t depth, T* out, bool nontemporal) {
  const auto gather = [&]<bool Nontemporal>() {
    for (int64_t x = 0; x < width; ++x, out += depth) {
      const auto [left, right] = outputs[x];
      weigh_rows<Nontemporal>(weights + first_weight[x], sums + left * depth, depth, right - left, depth, out);
    }
  };
  nontemporal &= Vec<A>::can_store_nontemporal(out, depth);
  nontemporal ? gather.template operator()<true>() : gather.template operator()<false>();
}

template struct ImageRowKernel<kit::Isa, double>;
template struct ImageRowKernel<kit::Isa, float>;
template struct ImageRowKernel<kit::Isa, c10::Half>;
template struct ImageRowKernel<kit::Isa, c10::BFloat16>;

}  // namespace cppcuda::ops::upsample_bilinear2d
