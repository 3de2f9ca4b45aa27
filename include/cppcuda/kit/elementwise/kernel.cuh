#pragma once

// The kernels of all elementwise operators. Device code only.

#include <cstdint>
#include <utility>

#include "cppcuda/kit/cuda/fast_float.cuh"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/elementwise/params.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/unroll.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// The number of accesses of this size that a thread keeps in flight per operand. With more, registers run out.
constexpr int elementwise_unroll(int bytes, int outputs) { return outputs > 1 ? 2 : bytes < 8 ? 8 : 4; }
constexpr int strided_unroll = 4;

// Calls store(output number, value) for each output that is requested.
template <class T, class Math, class Store, class... From>
__device__ void elementwise_values(const Math& math, T* const* out, Store store, From... from) {
  using A = elementwise_math<T>;
  const auto result = math(static_cast<A>(from)...);
#pragma unroll
  for (int o = 0; o < Math::outputs; ++o) {
    if (Math::outputs == 1 || out[o] != nullptr) store(o, static_cast<T>(result.value[o]));
  }
}

// N elements in a pack.
template <int N, class Math, class T, size_t... I>
__device__ void elementwise_packs(const DenseParams<Math, T>& p, std::index_sequence<I...>) {
  constexpr int U = elementwise_unroll(N * sizeof(T), Math::outputs);
  const int64_t packs = p.count / N, tile = int64_t{blockDim.x} * U;
  for (int64_t first = blockIdx.x * tile + threadIdx.x; first < packs; first += gridDim.x * tile) {
    Pack<T, N> in[U][sizeof...(I)];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t pack = first + u * int64_t{blockDim.x};
      if (pack < packs) ((in[u][I] = load<N>(p.in[I] + pack * N)), ...);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t pack = first + u * int64_t{blockDim.x};
      if (pack >= packs) continue;
      Pack<T, N> out[Math::outputs];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const auto set = [&](int o, T value) { out[o].value[i] = value; };
        elementwise_values<T>(p.math, p.out, set, widen<opmath<T>>(in[u][I], i)...);
      }
#pragma unroll
      for (int o = 0; o < Math::outputs; ++o) {
        if (Math::outputs == 1 || p.out[o] != nullptr) store(p.out[o] + pack * N, out[o]);
      }
    }
  }
  // The remaining elements, fewer than N.
  const int64_t last = packs * N + threadIdx.x;
  if (blockIdx.x == 0 && last < p.count) {
    elementwise_values<T>(p.math, p.out, [&](int o, T value) { p.out[o][last] = value; }, p.in[I][last]...);
  }
}

template <int N, class Math, class T>
__global__ void __launch_bounds__(threads_per_block) elementwise_dense_kernel(DenseParams<Math, T> p) {
  elementwise_packs<N>(p, std::make_index_sequence<Math::inputs>());
}

// Index must hold p.count.
template <class Index, class Math, class T, size_t... I>
__device__ void elementwise_elements(const StridedParams<Math, T>& p, std::index_sequence<I...>) {
  constexpr int U = strided_unroll;
  const int64_t tile = int64_t{blockDim.x} * U;
  for (int64_t first = blockIdx.x * tile + threadIdx.x; first < p.count; first += gridDim.x * tile) {
    int64_t to[U][Math::outputs];
    T in[U][sizeof...(I)];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t element = first + u * int64_t{blockDim.x};
      if (element >= p.count) continue;
      int64_t from[sizeof...(I)] = {};
#pragma unroll
      for (int o = 0; o < Math::outputs; ++o) to[u][o] = 0;
      auto index = static_cast<Index>(element);
      for (int d = 0; d < p.dims; ++d) {
        const auto [rest, i] = p.sizes[d].divide(index);
        index = static_cast<Index>(rest);
#pragma unroll
        for (int o = 0; o < Math::outputs; ++o) to[u][o] += i * p.out_strides[o][d];
        ((from[I] += i * p.in_strides[I][d]), ...);
      }
      ((in[u][I] = p.in[I][from[I]]), ...);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (first + u * int64_t{blockDim.x} >= p.count) continue;
      elementwise_values<T>(p.math, p.out, [&](int o, T value) { p.out[o][to[u][o]] = value; }, in[u][I]...);
    }
  }
}

template <class Math, class T>
__global__ void __launch_bounds__(threads_per_block) elementwise_strided_kernel(StridedParams<Math, T> p) {
  constexpr auto inputs = std::make_index_sequence<Math::inputs>();
  if (p.count < int64_t{1} << 31) {
    elementwise_elements<int32_t>(p, inputs);  // divides in 32 bits
  } else {
    elementwise_elements<int64_t>(p, inputs);
  }
}

// A thread for each point. Index must hold p.count.
template <class Index, class Math, class T>
__device__ void point_values(const PointParams<Math, T>& p) {
  using A = elementwise_math<T>;
  constexpr int tensors = Math::outputs + Math::inputs;
  unsigned requested = 0;
#pragma unroll
  for (int o = 0; o < Math::outputs; ++o) requested |= static_cast<unsigned>(p.out[o] != nullptr) << o;
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t point = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; point < p.count; point += threads) {
    int64_t offsets[tensors] = {};
    auto index = static_cast<Index>(point);
    for (int d = 0; d < p.dims; ++d) {
      const auto [rest, i] = p.sizes[d].divide(index);
      index = static_cast<Index>(rest);
#pragma unroll
      for (int t = 0; t < tensors; ++t) offsets[t] += i * p.strides[t][d];
    }
    // f(row, place in memory) for the values of a tensor
    const auto for_values = [&](auto tensor, auto f) {
      constexpr int t = decltype(tensor)::value, columns = Math::own[t].sizes[Math::own[t].rank == 2 ? 1 : 0];
      for_constants<Math::own[t].count()>([&](auto value) {
        constexpr int v = decltype(value)::value, row = Math::first_row(t) + v;
        constexpr bool is_matrix = Math::own[t].rank == 2;
        const int64_t first = (is_matrix ? v / columns : v) * p.own_strides[t][0];
        f(std::integral_constant<int, row>(), offsets[t] + first + (is_matrix ? v % columns * p.own_strides[t][1] : 0));
      });
    };
    A in[Math::in_count], out[Math::out_count];
    for_constants<Math::inputs>([&](auto input) {
      constexpr int i = decltype(input)::value;
      for_values(std::integral_constant<int, Math::outputs + i>(), [&](auto row, int64_t at) {
        in[decltype(row)::value - Math::out_count] = static_cast<A>(p.in[i][at]);
      });
    });
    p.math(in, out, requested);
    for_constants<Math::outputs>([&](auto output) {
      constexpr int o = decltype(output)::value;
      if (p.out[o] == nullptr) return;
      for_values(output, [&](auto row, int64_t at) { p.out[o][at] = static_cast<T>(out[decltype(row)::value]); });
    });
  }
}

template <class Math, class T>
__global__ void __launch_bounds__(threads_per_block) point_kernel(PointParams<Math, T> p) {
  if (p.count < int64_t{1} << 31) {
    point_values<int32_t>(p);  // divides in 32 bits
  } else {
    point_values<int64_t>(p);
  }
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
