#include "cppcuda/kit/cpu/few.h"
#include "cppcuda/kit/cpu/loops.h"
#include "interpolation/cpu/terms.h"

namespace cppcuda::interpolation {
inline namespace CPPCUDA_ISA {
namespace {

using kit::for_vectors;

// The processor prefetches the rest of longer rows.
constexpr int64_t prefetched_bytes = 256;

CPPCUDA_INLINE int64_t bytes_to_prefetch(int64_t row) { return row < prefetched_bytes ? row : prefetched_bytes; }

template <class V, bool Unit, class T, class Count>
CPPCUDA_INLINE V load(const T* row, int64_t f, int64_t step, Count n) {
  return Unit ? V::load(row + f, n) : V::load(row + f * step, step, n);
}

// A value of each of n points, `row` elements apart.
template <class V, class T>
CPPCUDA_INLINE V load_points(const T* from, int64_t row, int64_t n) {
  if (row == 1) return n == V::lanes ? V::load(from) : V::load(from, n);
  return V::load(from, row, n);
}
template <class V, class T>
CPPCUDA_INLINE void store_points(V values, T* to, int64_t row, int64_t n) {
  if (row == 1) return n == V::lanes ? values.store(to) : values.store(to, n);
  T memory[V::lanes];
  values.store(memory);
  for (int64_t i = 0; i < n; ++i) to[i * row] = memory[i];
}

// Unit: values of rows are contiguous. Out and Dot: what is requested, or may be.
template <class T, int corners, int count, bool Unit, bool Out, bool Dot>
CPPCUDA_FLATTEN void combine(Terms<kit::opmath<T>, count>& terms, const Terms<kit::opmath<T>, count>& next,
                             const BlockArguments<T>& a) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  const int64_t bytes = bytes_to_prefetch(a.features * a.step * static_cast<int64_t>(sizeof(T)));
  const bool out = Out && (Unit || a.out), products = Dot && (Unit || a.grad);
  for (int i = 0; i < a.valid; ++i) {
    next.prefetch(i, bytes);
    V dot[count];
    if (Dot) {
#pragma GCC unroll 32
      for (int k = 0; k < count; ++k) dot[k] = 0;
    }
    for_vectors<V>(a.features, [&](int64_t f, auto n) {
      V sum = 0, gradient = 0;
      if (products) gradient = load<V, Unit>(a.grad + i * a.grad_row, f, a.grad_step, n);
#pragma GCC unroll 32
      for (int k = 0; k < count; ++k) {
        const T* row = reinterpret_cast<const T*>(terms.row[k][i]);
        if (!row) continue;
        const V x = load<V, Unit>(row, f, k < corners ? a.step : a.second_step, n);
        if (Out) sum = fma(V(terms.weight[k][i]), x, sum);
        if (Dot) dot[k] = fma(gradient, x, dot[k]);
      }
      if (out) sum.store(a.out + i * a.out_row + f, n);
    });
    if (Dot) {
      A sums[count];
      V::sums(dot, std::integral_constant<int, count>(), sums);
      for (int k = 0; k < count; ++k) terms.dot[k][i] = sums[k];
    }
  }
}

// Fast path: F contiguous values of the accumulation type, fewer than a register has.
template <class T, int F, int count, bool Out, bool Dot>
CPPCUDA_FLATTEN void combine_few(Terms<T, count>& terms, const Terms<T, count>& next, const BlockArguments<T>& a) {
  using Values = kit::Few<T, F>;
  const auto run = [&](auto missing) {
    for (int i = 0; i < a.valid; ++i) {
      next.prefetch(i, sizeof(Values));
      Values gradient{}, sum{};
      if (Dot) gradient = Values::load(a.grad + i * a.grad_row);
#pragma GCC unroll 32
      for (int k = 0; k < count; ++k) {
        const T* row = reinterpret_cast<const T*>(terms.row[k][i]);
        if (missing && !row) {
          if (Dot) terms.dot[k][i] = 0;
          continue;
        }
        const Values x = Values::load(row);
        if (Out) sum = fma(terms.weight[k][i], x, sum);
        if (Dot) terms.dot[k][i] = (gradient * x).sum();
      }
      if (Out) sum.store(a.out + i * a.out_row);
    }
  };
  a.has_missing ? run(std::true_type()) : run(std::false_type());
}

// Calls f(F) with a number of features that has a fast path, if this is one.
template <class V, class F>
CPPCUDA_INLINE bool with_few(int64_t features, F f) {
  switch (features) {
    case 4:
      return f(std::integral_constant<int, 4>()), true;
    case 8:
      if constexpr (V::lanes > 8) return f(std::integral_constant<int, 8>()), true;
      return false;
    default:
      return false;
  }
}

template <class T, int corners, int count, bool Out, bool Dot>
void combine_unit(Terms<kit::opmath<T>, count>& terms, const Terms<kit::opmath<T>, count>& next,
                  const BlockArguments<T>& a) {
  using V = kit::Vec<kit::opmath<T>>;
  if constexpr (sizeof(T) == sizeof(kit::opmath<T>)) {
    if (with_few<V>(a.features, [&](auto few) { combine_few<T, few, count, Out, Dot>(terms, next, a); })) return;
  }
  combine<T, corners, count, true, Out, Dot>(terms, next, a);
}

CPPCUDA_INLINE double load_pair(const float* from) {
  double pair;
  __builtin_memcpy(&pair, from, sizeof(pair));
  return pair;
}

template <class V>
CPPCUDA_INLINE bool are_all_valid(typename V::Offsets offsets) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)offsets) == 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)offsets) == 0;
#elif defined(__SSE2__)
  return _mm_movemask_ps((__m128)offsets) == 0;
#else
  return false;
#endif
}

// The values of rows at these offsets, or zeros for a negative offset. Lanes are points. Values are loaded in pairs,
// because two gathers take three times as long on AMD's Zen 5.
template <int F, class V>
CPPCUDA_INLINE void gather_rows(const float* from, const int32_t* at, V (&values)[F]) {
  typename V::Offsets offsets;
  __builtin_memcpy(&offsets, at, sizeof(offsets));
  if (!are_all_valid<V>(offsets)) {
    for (int f = 0; f < F; ++f) values[f] = V::gather(from + f, offsets);
    return;
  }
  using Pairs __attribute__((vector_size(sizeof(V)))) = double;
  [&]<int... I>(std::integer_sequence<int, I...>) {
    // Two points in each 16 bytes: I / 2 * 4 + I % 2 are 0 1 4 5 ... Then values are separated within 16 bytes.
    const auto low = (typename V::Values)Pairs{load_pair(from + at[I / 2 * 4 + I % 2])...};
    const auto high = (typename V::Values)Pairs{load_pair(from + at[I / 2 * 4 + I % 2 + 2])...};
    [&]<int... J>(std::integer_sequence<int, J...>) {
      values[0] = __builtin_shufflevector(low, high, (J / 4 * 4 + J % 2 * 2 + (J % 4 < 2 ? 0 : V::lanes))...);
      values[1] = __builtin_shufflevector(low, high, (J / 4 * 4 + J % 2 * 2 + 1 + (J % 4 < 2 ? 0 : V::lanes))...);
    }(std::make_integer_sequence<int, V::lanes>());
  }(std::make_integer_sequence<int, V::lanes / 2>());
  if constexpr (F == 3) values[2] = V::gather(from + 2, offsets);
}

// Lanes are points. Out and Dot as in `combine`.
template <class T, int F, int corners, int count, bool Out, bool Dot>
CPPCUDA_FLATTEN void combine_points(Terms<kit::opmath<T>, count>& terms, const Terms<kit::opmath<T>, count>& next,
                                    const BlockArguments<T>& a) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  const bool out = Out && (!Dot || a.out), products = Dot && (!Out || a.grad);
  for (int i = 0; i < block_points; i += V::lanes) {
    const int64_t n = a.valid - i < V::lanes ? a.valid - i : V::lanes;
    if (n <= 0) break;
    V sum[F], gradient[F];
    for (int f = 0; f < F; ++f) {
      sum[f] = 0;
      gradient[f] = 0;
      if (products) gradient[f] = load_points<V>(a.grad + i * a.grad_row + f * a.grad_step, a.grad_row, n);
    }
    for (int second = 0; second < count / corners; ++second) {
      const T* const from = second ? a.second : a.table;
      const int64_t step = second ? a.second_step : a.step;
#pragma GCC unroll 8
      for (int c = 0; c < corners; ++c) {
        const int k = second * corners + c;
        typename V::Offsets offset;
        __builtin_memcpy(&offset, terms.offset[k] + i, sizeof(offset));
        if (a.table_is_large) next.prefetch(k, i, from);
        const typename V::Mask valid{__builtin_convertvector(offset, typename V::Ints) >= 0};
        const V weight = select(valid, V::load(terms.weight[k] + i), V(0));
        if constexpr (!Dot && F > 1 && sizeof(T) == sizeof(float)) {  // with Dot the hash grid would take longer
          if (step == 1) {
            V x[F];
            gather_rows(from, terms.offset[k] + i, x);
            for (int f = 0; f < F; ++f) sum[f] = fma(weight, x[f], sum[f]);
            continue;
          }
        }
        V dot = 0;
        for (int f = 0; f < F; ++f) {
          const V x = V::gather(from + f * step, offset);
          if (Out) sum[f] = fma(weight, x, sum[f]);
          if (Dot) dot = fma(gradient[f], x, dot);
        }
        if (Dot) select(valid, dot, V(0)).store(terms.dot[k] + i);
      }
    }
    if (!out) continue;
    for (int f = 0; f < F; ++f) store_points(sum[f], a.out + i * a.out_row + f, a.out_row, n);
  }
}

// Calls f(F) with a number of features with which lanes are points.
template <class F>
CPPCUDA_INLINE void with_features_of_points(int64_t features, F f) {
  switch (features) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    default:
      return f(std::integral_constant<int, 3>());
  }
}

template <class T, int corners, int count>
void choose_points(Terms<kit::opmath<T>, count>& terms, const Terms<kit::opmath<T>, count>& next,
                   const BlockArguments<T>& a) {
  with_features_of_points(a.features, [&]<int F>(std::integral_constant<int, F>) {
    auto* loop = combine_points<T, F, corners, count, true, true>;
    if constexpr (count == corners) {
      if (!a.grad) loop = combine_points<T, F, corners, count, true, false>;
      if (!a.out) loop = combine_points<T, F, corners, count, false, true>;
    }
    loop(terms, next, a);
  });
}

template <class T, int corners, int count>
void choose(Terms<kit::opmath<T>, count>& terms, const Terms<kit::opmath<T>, count>& next, const BlockArguments<T>& a) {
  if (a.table) return choose_points<T, corners>(terms, next, a);
  const bool unit = a.step == 1 && a.grad_step == 1 && (count == corners || a.second_step == 1);
  const auto loop = !unit             ? combine<T, corners, count, false, true, true>
                    : a.out && a.grad ? combine_unit<T, corners, count, true, true>
                    : a.out           ? combine_unit<T, corners, count, true, false>
                                      : combine_unit<T, corners, count, false, true>;
  loop(terms, next, a);
}

template <bool Unit, class T, class A, int corners, int axes>
CPPCUDA_FLATTEN void combine_slopes(const Terms<A, corners>& terms, const Terms<A, corners>& next,
                                    const BlockArguments<T>& a, const A (&slope)[corners][axes][block_points],
                                    T* out_slopes) {
  using V = kit::Vec<A>;
  const int64_t bytes = bytes_to_prefetch(a.features * a.step * static_cast<int64_t>(sizeof(T)));
  for (int i = 0; i < a.valid; ++i) {
    next.prefetch(i, bytes);
    for_vectors<V>(a.features, [&](int64_t f, auto n) {
      V sum = 0, slopes[axes];
      for (V& s : slopes) s = 0;
#pragma GCC unroll 16
      for (int c = 0; c < corners; ++c) {
        const T* row = reinterpret_cast<const T*>(terms.row[c][i]);
        if (!row) continue;
        const V x = load<V, Unit>(row, f, a.step, n);
        sum = fma(V(terms.weight[c][i]), x, sum);
#pragma GCC unroll 4
        for (int d = 0; d < axes; ++d) slopes[d] = fma(V(slope[c][d][i]), x, slopes[d]);
      }
      sum.store(a.out + i * a.out_row + f, n);
      T values[axes][V::lanes];
      for (int d = 0; d < axes; ++d) slopes[d].store(values[d]);
      for (int64_t k = 0; k < n; ++k) {
        for (int d = 0; d < axes; ++d) out_slopes[(i * a.features + f + k) * axes + d] = values[d][k];
      }
    });
  }
}

template <class T, bool Unit>
CPPCUDA_FLATTEN void spread(const auto& terms, const auto& next, const BlockArguments<T>& a) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  constexpr int corners = sizeof(terms.row) / sizeof(terms.row[0]);
  const int64_t bytes = bytes_to_prefetch(a.features * static_cast<int64_t>(sizeof(A)));
  for (int i = 0; i < a.valid; ++i) {
    next.prefetch(i, bytes);
    for_vectors<V>(a.features, [&](int64_t f, auto n) {
      const V gradient = load<V, Unit>(a.grad + i * a.grad_row, f, a.grad_step, n);
#pragma GCC unroll 16
      for (int c = 0; c < corners; ++c) {
        A* row = reinterpret_cast<A*>(terms.row[c][i]);
        if (!row) continue;
        fma(V(terms.weight[c][i]), gradient, V::load(row + f, n)).store(row + f, n);
      }
    });
  }
}

template <class T, int F>
CPPCUDA_FLATTEN void spread_few(const auto& terms, const auto& next, const BlockArguments<T>& a) {
  using A = kit::opmath<T>;
  using Values = kit::Few<A, F>;
  constexpr int corners = sizeof(terms.row) / sizeof(terms.row[0]);
  for (int i = 0; i < a.valid; ++i) {
    next.prefetch(i, sizeof(Values));
    const T* grad = a.grad + i * a.grad_row;
    A values[F];
    for (int f = 0; f < F; ++f) kit::Vec<A>::load(grad + f * a.grad_step, 1).store(values + f, 1);
    const Values gradient = Values::load(values);
#pragma GCC unroll 16
    for (int c = 0; c < corners; ++c) {
      A* row = reinterpret_cast<A*>(terms.row[c][i]);
      fma(terms.weight[c][i], gradient, Values::load(row)).store(row);
    }
  }
}

// Lanes are points. A point's terms are added one after another, because corners may share a row.
template <class T, int F, bool Missing>
CPPCUDA_FLATTEN void spread_points(const auto& terms, const auto& next, const BlockArguments<T>& a) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  constexpr int corners = sizeof(terms.offset) / sizeof(terms.offset[0]);
  for (int i = 0; i < block_points; i += V::lanes) {
    const int64_t n = a.valid - i < V::lanes ? a.valid - i : V::lanes;
    if (n <= 0) break;
    V gradient[F];
    for (int f = 0; f < F; ++f) {
      gradient[f] = load_points<V>(a.grad + i * a.grad_row + f * a.grad_step, a.grad_row, n);
    }
    int32_t at[corners][V::lanes];
    A term[corners][F][V::lanes];
#pragma GCC unroll 8
    for (int c = 0; c < corners; ++c) {
      if (a.table_is_large) next.prefetch(c, i, a.sums);
      const V weight = V::load(terms.weight[c] + i);
      typename V::Offsets offset;
      __builtin_memcpy(&offset, terms.offset[c] + i, sizeof(offset));
      const typename V::Mask valid{__builtin_convertvector(offset, typename V::Ints) >= 0};
      for (int f = 0; f < F; ++f) {
        const V product = weight * gradient[f];
        (Missing ? select(valid, product, V(0)) : product).store(term[c][f]);
      }
      offset ^= offset >> 31;
      if (Missing) __builtin_memcpy(at[c], &offset, sizeof(offset));
    }
    for (int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 8
      for (int c = 0; c < corners; ++c) {
        A* row = a.sums + (Missing ? at[c][k] : terms.offset[c][i + k]);
        asm("" : "+r"(row));  // else gcc 12 computes the address of each feature on its own
        for (int f = 0; f < F; ++f) row[f] += term[c][f][k];
      }
    }
  }
}

}  // namespace

template <class T, int corners>
void TermLoops<T, corners>::gather(Terms<A, corners>& terms, const Terms<A, corners>& next,
                                   const BlockArguments<T>& a) {
  choose<T, corners>(terms, next, a);
}

template <class T, int corners>
void TermLoops<T, corners>::gather(Terms<A, 2 * corners>& terms, const Terms<A, 2 * corners>& next,
                                   const BlockArguments<T>& a) {
  choose<T, corners>(terms, next, a);
}

template <class T, int corners>
void TermLoops<T, corners>::scatter(const Terms<A, corners>& terms, const Terms<A, corners>& next,
                                    const BlockArguments<T>& a) {
  if (a.sums) {
    return with_features_of_points(a.features, [&](auto f) {
      a.has_missing ? spread_points<T, f, true>(terms, next, a) : spread_points<T, f, false>(terms, next, a);
    });
  }
  if (with_few<V>(a.features, [&](auto few) { spread_few<T, few>(terms, next, a); })) return;
  a.grad_step == 1 ? spread<T, true>(terms, next, a) : spread<T, false>(terms, next, a);
}

template <class T, int corners>
template <int axes>
void TermLoops<T, corners>::gather_slopes(const Terms<A, corners>& terms, const Terms<A, corners>& next,
                                          const BlockArguments<T>& a, const A (&slope)[corners][axes][block_points],
                                          T* out_slopes) {
  if (a.step == 1) {
    combine_slopes<true>(terms, next, a, slope, out_slopes);
  } else {
    combine_slopes<false>(terms, next, a, slope, out_slopes);
  }
}

#define CPPCUDA_INSTANTIATE_TERMS(T)                                                                                  \
  template struct TermLoops<T, 4>;                                                                                    \
  template struct TermLoops<T, 8>;                                                                                    \
  template struct TermLoops<T, 16>;                                                                                   \
  template void TermLoops<T, 8>::gather_slopes(const Terms<kit::opmath<T>, 8>&, const Terms<kit::opmath<T>, 8>&,      \
                                               const BlockArguments<T>&, const kit::opmath<T>(&)[8][3][block_points], \
                                               T*)

CPPCUDA_INSTANTIATE_TERMS(double);
CPPCUDA_INSTANTIATE_TERMS(float);
CPPCUDA_INSTANTIATE_TERMS(c10::Half);
CPPCUDA_INSTANTIATE_TERMS(c10::BFloat16);

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::interpolation
