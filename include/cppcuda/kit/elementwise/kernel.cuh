#pragma once

// The kernels of all elementwise operators. Device code only.

#include <cstdint>
#include <utility>

#include "cppcuda/kit/cuda/fast_float.cuh"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/pack.cuh"
#include "cppcuda/kit/elementwise/params.h"
#include "cppcuda/kit/math/opmath.h"

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

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
