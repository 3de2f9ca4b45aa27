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
    // A caller's memory may begin anywhere; such stores want whole registers of elements.
    stream &= reinterpret_cast<uintptr_t>(out) % sizeof(T) == 0;
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

  // Steps in bytes. Through the dense loop too, so that an element's bits do not depend on where it lies; in pieces
  // that stay in the first cache. (A register's worth at a time is slow to read right after it was written.)
  CPPCUDA_FLATTEN static void strided(char* const* data, const int64_t* steps, int64_t n) {
    constexpr int64_t piece = 256;
    T memory[inputs + 1][piece];
    for (int64_t begin = 0; begin < n; begin += piece) {
      const int64_t count = n - begin < piece ? n - begin : piece;
      const T* in[inputs];
      for (int input = 0; input < inputs; ++input) {
        const int64_t step = steps[input + 1];
        const char* from = data[input + 1] + begin * step;
        in[input] = step == sizeof(T) ? reinterpret_cast<const T*>(from) : memory[input + 1];
        if (step == sizeof(T)) continue;
        for (int64_t k = 0; k < count; ++k) __builtin_memcpy(&memory[input + 1][k], from + k * step, sizeof(T));
      }
      char* to = data[0] + begin * steps[0];
      dense<false>(steps[0] == sizeof(T) ? reinterpret_cast<T*>(to) : memory[0], in, count);
      if (steps[0] == sizeof(T)) continue;
      for (int64_t k = 0; k < count; ++k) __builtin_memcpy(to + k * steps[0], &memory[0][k], sizeof(T));
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
