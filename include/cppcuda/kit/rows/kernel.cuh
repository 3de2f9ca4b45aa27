#pragma once

// The kernels of formulas of rows (formula.h). Device code only.

#include <cstdint>
#include <limits>

#include "cppcuda/kit/cuda/fast_float.cuh"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/math/array.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/unroll.h"
#include "cppcuda/kit/rows/formula.h"
#include "cppcuda/kit/rows/params.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

constexpr int warp_threads = 32;
// A block computes a longer row, a warp a shorter one.
constexpr int64_t longest_row_of_warp = 1 << 12;

template <class A, class T>
struct RowIn {
  const T* data;
  int64_t step;

  __device__ A operator[](int64_t f) const { return static_cast<A>(static_cast<opmath<T>>(data[f * step])); }
};

template <class A, class T>
struct RowOut {
  T* data;
  int64_t step;

  __device__ void set(int64_t f, A value) const {
    if (data != nullptr) data[f * step] = static_cast<T>(static_cast<opmath<T>>(value));
  }
};

// keep(): a value is computed again whenever it is read.
template <class Row, class F>
struct KeptRow {
  const Row& row;
  F of;

  __device__ auto operator[](int64_t f) const { return of(f); }
  __device__ auto sum() const { return row.sum(of); }
};

// A row of so many threads.
template <class A, int Threads>
class Row {
 public:
  using Value = A;
  using Sum = opmath<std::conditional_t<std::is_same_v<A, double>, double, float>>;

  __device__ Row(int64_t size, Sum* shared) : size_(size), shared_(shared), thread_(threadIdx.x % Threads) {}

  __device__ int64_t size() const { return size_; }
  __device__ static A number(double x) { return static_cast<A>(static_cast<Sum>(x)); }
  // Whether this thread writes what the row has one of.
  __device__ bool is_first() const { return thread_ == 0; }

  template <class F>
  __device__ void for_each(F f) const {
#pragma unroll 4
    for (int64_t i = thread_; i < size_; i += Threads) f(i);
  }

  template <class F>
  __device__ auto sum(F f) const {
    return reduce(f, Sum(0), [](Sum a, Sum b) { return a + b; });
  }
  template <class F>
  __device__ auto mean(F f) const {
    const auto total = sum(f);
    using Result = std::remove_const_t<decltype(total)>;
    return each<Result>([&](int i) { return part(total, i) / static_cast<A>(static_cast<Sum>(size_)); });
  }
  template <class F>
  __device__ A max(F f) const {
    return reduce(f, -std::numeric_limits<Sum>::infinity(), [](Sum a, Sum b) { return kit::max(a, b); });
  }
  template <class F>
  __device__ KeptRow<Row, F> keep(F f) const {
    return {*this, f};
  }

  template <class T>
  __device__ A at(const RowIn<A, T>& in, int64_t index) const {
    if (index >= 0 && index < size_) return in[index];
    return number(index == -1 ? 0 : std::numeric_limits<double>::quiet_NaN());
  }
  __device__ static A has(int64_t index) { return number(index < 0 ? 0 : 1); }
  __device__ A is_at(int64_t f, int64_t index) const { return number(f == index ? 1 : 0); }
  __device__ A is_before(int64_t f, int64_t n) const { return number(f < n ? 1 : 0); }
  template <class T>
  __device__ A rolled(const RowIn<A, T>& in, int64_t f, int64_t n) const {
    return in[f + n < size_ ? f + n : f + n - size_];
  }

 private:
  // A number or an Array of them, and its parts.
  template <class Result, class F>
  __device__ static Result each(F f) {
    if constexpr (std::is_same_v<Result, A>) {
      return f(0);
    } else {
      return Result::of(f);
    }
  }
  template <class Values>
  __device__ static A part(const Values& values, int i) {
    if constexpr (std::is_same_v<Values, A>) {
      return values;
    } else {
      return values[i];
    }
  }

  // The order is fixed, and every thread gets the same bits.
  template <class F, class Join>
  __device__ auto reduce(F f, Sum none, Join join) const {
    using Result = decltype(f(int64_t()));
    constexpr int count = sizeof(Result) / sizeof(A);
    Sum all[count];
#pragma unroll
    for (int k = 0; k < count; ++k) all[k] = none;
#pragma unroll 4
    for (int64_t i = thread_; i < size_; i += Threads) {
      const Result values = f(i);
#pragma unroll
      for (int k = 0; k < count; ++k) all[k] = join(all[k], static_cast<Sum>(part(values, k)));
    }
#pragma unroll
    for (int k = 0; k < count; ++k) all[k] = join_threads(all[k], join);
    return each<Result>([&](int k) { return static_cast<A>(all[k]); });
  }

  template <class Join>
  __device__ Sum join_threads(Sum all, Join join) const {
    for (int distance = warp_threads / 2; distance > 0; distance /= 2) {
      all = join(all, __shfl_xor_sync(0xffffffff, all, distance));
    }
    if constexpr (Threads > warp_threads) {
      __syncthreads();  // the last result was read
      if (thread_ % warp_threads == 0) shared_[thread_ / warp_threads] = all;
      __syncthreads();
      all = shared_[0];
      for (int warp = 1; warp < Threads / warp_threads; ++warp) all = join(all, shared_[warp]);
    }
    return all;
  }

  int64_t size_;
  Sum* shared_;
  int thread_;
};

template <class Math, class T, class A, int t>
using RowElement =
    std::conditional_t<Math::own[t].is_index, int64_t, std::conditional_t<Math::own[t].is_opmath, opmath<T>, T>>;

template <class Math, class T, class A, int o>
using RowResult = std::conditional_t<Math::own[o].is_row(), RowOut<A, RowElement<Math, T, A, o>>, A>;

template <class Math, class T, class A, class O>
struct RowResults;
template <class Math, class T, class A, int... O>
struct RowResults<Math, T, A, std::integer_sequence<int, O...>> : NumberedAttribute<O, RowResult<Math, T, A, O>>... {};

template <int Threads, class Math, class T>
__global__ void __launch_bounds__(threads_per_block) row_kernel(RowParams<Math, T> p) {
  using A = elementwise_math<T>;
  using Results = RowResults<Math, T, A, std::make_integer_sequence<int, Math::outputs>>;
  constexpr int rows_per_block = threads_per_block / Threads, operands = Math::outputs + Math::inputs;
  __shared__ typename Row<A, Threads>::Sum shared[threads_per_block / warp_threads];
  const Row<A, Threads> row(p.math.features, shared);
  const int64_t first = int64_t{blockIdx.x} * rows_per_block + threadIdx.x / Threads;
  for (int64_t r = first; r < p.rows; r += int64_t{gridDim.x} * rows_per_block) {
    int64_t offsets[operands] = {};
    int64_t index = r;
    for (int d = 0; d < p.dims; ++d) {
      const auto [rest, i] = p.sizes[d].divide(index);
      index = rest;
#pragma unroll
      for (int t = 0; t < operands; ++t) offsets[t] += i * p.strides[t][d];
    }
    Results results;
    for_constants<Math::outputs>([&](auto output) {
      constexpr int o = decltype(output)::value;
      if constexpr (Math::own[o].is_row()) {
        using E = RowElement<Math, T, A, o>;
        auto& result = static_cast<NumberedAttribute<o, RowResult<Math, T, A, o>>&>(results).value;
        result.data = p.out[o] != nullptr ? static_cast<E*>(p.out[o]) + offsets[o] : nullptr;
        result.step = p.inner[o];
      }
    });
    p.math(
        row,
        [&](auto input) {
          constexpr int i = decltype(input)::value, t = Math::outputs + i;
          using E = RowElement<Math, T, A, t>;
          const E* const from = static_cast<const E*>(p.in[i]) + offsets[t];
          if constexpr (Math::own[t].is_row()) {
            return RowIn<A, E>{from, p.inner[t]};
          } else if constexpr (Math::own[t].is_index) {
            return int64_t{*from};
          } else {
            return static_cast<A>(static_cast<opmath<E>>(*from));
          }
        },
        [&](auto output) -> auto& {
          constexpr int o = decltype(output)::value;
          return static_cast<NumberedAttribute<o, RowResult<Math, T, A, o>>&>(results).value;
        });
    for_constants<Math::outputs>([&](auto output) {
      constexpr int o = decltype(output)::value;
      if constexpr (!Math::own[o].is_row()) {
        using E = RowElement<Math, T, A, o>;
        if (p.out[o] == nullptr || !row.is_first()) return;
        const A value = static_cast<NumberedAttribute<o, A>&>(results).value;
        static_cast<E*>(p.out[o])[offsets[o]] = static_cast<E>(static_cast<opmath<E>>(value));
      }
    });
  }
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
