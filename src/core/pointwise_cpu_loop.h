#pragma once

// Loops of elementwise ops, for an op's cpu_kernel.cpp (isa.h), which instantiates them for its formulas:
//
//   template struct core::PointwiseKernel<core::Isa, ForwardMath, /*inputs*/ 1>;

#include <utility>

#include "core/opmath.h"
#include "core/pointwise_cpu_kernel.h"
#include "core/vec.h"

namespace cppcuda::core {
namespace CPPCUDA_ISA {

template <class Math, class T, int inputs>
struct PointwiseLoop {
  using V = Vec<opmath<T>, /*Coarse*/ sizeof(T) == 2>;

  static void run(char* const* data, const int64_t* steps, int64_t n, bool stream) {
    for (int t = 0; t <= inputs; ++t) {
      if (steps[t] != sizeof(T)) return strided(data, steps, n);
    }
    const T* in[inputs];
    for (int input = 0; input < inputs; ++input) in[input] = reinterpret_cast<const T*>(data[input + 1]);
    T* out = reinterpret_cast<T*>(data[0]);
    stream ? dense<true>(out, in, n) : dense<false>(out, in, n);
  }

 private:
  template <bool Stream>
  CPPCUDA_FLATTEN static void dense(T* out, const T* const* in, int64_t n) {
    write_vectors<V, Stream>(out, n, [&](int64_t i, auto count) {
      return apply([&](int input) {
        if (Stream) __builtin_prefetch(reinterpret_cast<const char*>(in[input] + i) + prefetch_bytes);
        return V::load(in[input] + i, count);
      });
    });
  }

  // Steps in bytes. Through vectors too, so that an element's bits do not depend on where it lies.
  CPPCUDA_FLATTEN static void strided(char* const* data, const int64_t* steps, int64_t n) {
    for (int64_t i = 0; i < n; i += V::lanes) {
      const int64_t count = n - i < V::lanes ? n - i : V::lanes;
      T gathered[inputs][V::lanes], result[V::lanes];
      for (int input = 0; input < inputs; ++input) {
        for (int64_t k = 0; k < V::lanes; ++k) {
          const int64_t at = i + (k < count ? k : 0);
          __builtin_memcpy(&gathered[input][k], data[input + 1] + at * steps[input + 1], sizeof(T));
        }
      }
      apply([&](int input) { return V::load(gathered[input]); }).store(result);
      for (int64_t k = 0; k < count; ++k) __builtin_memcpy(data[0] + (i + k) * steps[0], &result[k], sizeof(T));
    }
  }

  template <class Load>
  CPPCUDA_INLINE static V apply(Load load) {
    return [&]<int... I>(std::integer_sequence<int, I...>) {
      const V values[] = {load(I)...};
      return Math()(values[I]...);
    }(std::make_integer_sequence<int, inputs>());
  }
};

}  // namespace CPPCUDA_ISA

template <class Isa, class Math, int inputs>
void PointwiseKernel<Isa, Math, inputs>::run(std::type_identity<double>, char* const* data, const int64_t* steps,
                                             int64_t n, bool stream) {
  PointwiseLoop<Math, double, inputs>::run(data, steps, n, stream);
}

template <class Isa, class Math, int inputs>
void PointwiseKernel<Isa, Math, inputs>::run(std::type_identity<float>, char* const* data, const int64_t* steps,
                                             int64_t n, bool stream) {
  PointwiseLoop<Math, float, inputs>::run(data, steps, n, stream);
}

template <class Isa, class Math, int inputs>
void PointwiseKernel<Isa, Math, inputs>::run(std::type_identity<c10::Half>, char* const* data, const int64_t* steps,
                                             int64_t n, bool stream) {
  PointwiseLoop<Math, c10::Half, inputs>::run(data, steps, n, stream);
}

template <class Isa, class Math, int inputs>
void PointwiseKernel<Isa, Math, inputs>::run(std::type_identity<c10::BFloat16>, char* const* data, const int64_t* steps,
                                             int64_t n, bool stream) {
  PointwiseLoop<Math, c10::BFloat16, inputs>::run(data, steps, n, stream);
}

}  // namespace cppcuda::core
