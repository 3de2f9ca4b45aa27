#pragma once

// The loops of elementwise operators. A library's cpu_kernel.cpp (isa.h) instantiates them:
//
//   template void kit::instantiate_elementwise<kit::Isa>(Family);

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <concepts>
#include <utility>

#include "cppcuda/kit/cpu/functions.h"
#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/math.h"
#include "cppcuda/kit/cpu/vec.h"
#include "cppcuda/kit/elementwise/cpu_kernel.h"
#include "cppcuda/kit/elementwise/each_math.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/unroll.h"
#include "cppcuda/kit/rows/cpu_loop.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// Adds n values to sums, in float64, because in float32 many numbers that are added one after another lose digits. The
// step between the sums is in bytes.
template <class V, class A>
CPPCUDA_INLINE void add_to_sums(char* to, int64_t step, const A* from, int64_t n) {
  if (step == 0) {
    V total = 0;
    for_vectors<V>(n, [&](int64_t i, auto count) { total += V::load(from + i, count); });
    A sum;
    V::sums(&total, std::integral_constant<int, 1>(), &sum);
    *reinterpret_cast<double*>(to) += sum;
  } else if (step == sizeof(double)) {
    double* const sums = reinterpret_cast<double*>(to);
    for (int64_t k = 0; k < n; ++k) sums[k] += from[k];
  } else {
    for (int64_t k = 0; k < n; ++k) *reinterpret_cast<double*>(to + k * step) += from[k];
  }
}

// Attributes is Math, or empty if Math has no attributes: capturing an empty Math in lambdas costs registers.
template <class Math, class T, class... Attributes>
struct ElementwiseLoop {
  static constexpr int inputs = Math::inputs, outputs = Math::outputs;
  using A = opmath<T>;
  using V = Vec<A, /*Fast*/ sizeof(T) == 2>;

  CPPCUDA_FLATTEN static void run(char* const* data, const int64_t* steps, int64_t n, bool nontemporal,
                                  Attributes... math) {
    for (int t = 0; t < outputs + inputs; ++t) {
      if (steps[t] != sizeof(T)) return strided(data, steps, n, math...);
    }
    const T* in[inputs];
    for (int i = 0; i < inputs; ++i) in[i] = reinterpret_cast<const T*>(data[outputs + i]);
    T* out[outputs];
    for (int o = 0; o < outputs; ++o) out[o] = reinterpret_cast<T*>(data[o]);
    if constexpr (outputs == 1) {
      // A caller's memory may have any alignment, but non-temporal stores need elements that are aligned.
      nontemporal &= reinterpret_cast<uintptr_t>(out[0]) % sizeof(T) == 0;
      nontemporal ? dense_nontemporal(out[0], in, n, math...) : dense<false>(out[0], in, n, math...);
    } else {
      dense<false>(out, nullptr, in, n, math...);
    }
  }

  // Steps are in bytes. The values go through the dense loop too, so that an element's bits do not depend on its
  // position, in blocks that stay in the L1 cache. (Blocks of one register are slow to load right after they were
  // stored.) An argument after the attributes has bit o if output number o is added up. gcc 12 crashes if it makes
  // vectors of statements here that have vectors of AVX-512 already.
  template <std::same_as<unsigned>... Sums>
  [[gnu::noinline, gnu::optimize("no-tree-slp-vectorize")]] CPPCUDA_FLATTEN static void strided(
      char* const* data, const int64_t* steps, int64_t n, Attributes... math, Sums... sums) {
    constexpr bool has_sums = sizeof...(Sums) > 0;
    constexpr int64_t block = 256;
    T memory[outputs + inputs][block];
    A to_sum[has_sums ? outputs : 1][block];
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t count = n - begin < block ? n - begin : block;
      const T* in[inputs];
      for (int input = 0; input < inputs; ++input) {
        const int t = outputs + input;
        const int64_t step = steps[t];
        const char* from = data[t] + begin * step;
        in[input] = step == sizeof(T) ? reinterpret_cast<const T*>(from) : memory[t];
        if (step == sizeof(T)) continue;
        for (int64_t k = 0; k < count; ++k) __builtin_memcpy(&memory[t][k], from + k * step, sizeof(T));
      }
      T* out[outputs];
      A* sum[outputs] = {};
      for (int o = 0; o < outputs; ++o) {
        const bool is_dense = steps[o] == sizeof(T);
        out[o] = data[o] == nullptr ? nullptr : is_dense ? reinterpret_cast<T*>(data[o]) + begin : memory[o];
        if (((sums >> o & 1) | ... | 0U) != 0) {
          out[o] = nullptr;
          sum[o] = to_sum[o];
        }
      }
      if constexpr (outputs == 1) {
        dense<false>(out[0], in, count, math...);
      } else {
        dense<has_sums>(out, sum, in, count, math...);
      }
      for (int o = 0; o < outputs; ++o) {
        if (sum[o] != nullptr) add_to_sums<V>(data[o] + begin * steps[o], steps[o], sum[o], count);
        if (out[o] == nullptr || steps[o] == sizeof(T)) continue;
        char* to = data[o] + begin * steps[o];
        for (int64_t k = 0; k < count; ++k) __builtin_memcpy(to + k * steps[o], &memory[o][k], sizeof(T));
      }
    }
  }

 private:
  // Always inlined: out of line, gcc 12 needs three more instructions per register for the loop.
  template <bool Nontemporal>
  CPPCUDA_INLINE static void dense(T* out, const T* const* in, int64_t n, Attributes... math) {
    write_vectors<V, Nontemporal>(out, n, [&](int64_t i, auto count) {
      return apply(
                 [&](int input) {
                   if (Nontemporal) __builtin_prefetch(reinterpret_cast<const char*>(in[input] + i) + prefetch_bytes);
                   return V::load(in[input] + i, count);
                 },
                 math...)
          .value[0];
    });
  }

  [[gnu::noinline]] CPPCUDA_FLATTEN static void dense_nontemporal(T* out, const T* const* in, int64_t n,
                                                                  Attributes... math) {
    dense<true>(out, in, n, math...);
  }

  // For several outputs, of which some may be null. Each is either `out` or, with Sums, `sum`. The values after the
  // last full register are computed by the same instructions: in a loop of its own, the compiler might fuse another
  // product of a sum, and the bits of a value would depend on the number of threads.
  template <bool Sums>
  CPPCUDA_INLINE static void dense(T* const* out, A* const* sum, const T* const* in, int64_t n, Attributes... math) {
    const int64_t rest = n % V::lanes, begin = n - rest;
    registers<Sums>(out, sum, in, begin, math...);
    if (rest == 0) return;
    T memory[outputs + inputs][V::lanes] = {};
    A to_sum[Sums ? outputs : 1][V::lanes];
    const T* last_in[inputs];
    T* last_out[outputs];
    A* last_sum[outputs] = {};
    for (int i = 0; i < inputs; ++i) {
      last_in[i] = memory[outputs + i];
      __builtin_memcpy(memory[outputs + i], in[i] + begin, rest * sizeof(T));
    }
    for (int o = 0; o < outputs; ++o) {
      last_out[o] = out[o] != nullptr ? memory[o] : nullptr;
      if constexpr (Sums) last_sum[o] = sum[o] != nullptr ? to_sum[o] : nullptr;
    }
    registers<Sums>(last_out, last_sum, last_in, V::lanes, math...);
    for (int o = 0; o < outputs; ++o) {
      if (out[o] != nullptr) __builtin_memcpy(out[o] + begin, memory[o], rest * sizeof(T));
      if constexpr (Sums) {
        if (sum[o] != nullptr) __builtin_memcpy(sum[o] + begin, to_sum[o], rest * sizeof(A));
      }
    }
  }

  // n is a multiple of the lanes. gcc 12 crashes if it makes vectors of statements that have vectors of AVX-512
  // already.
  template <bool Sums>
  [[gnu::noinline, gnu::optimize("no-tree-slp-vectorize")]] CPPCUDA_FLATTEN static void registers(
      T* const* out, A* const* sum, const T* const* in, int64_t n, Attributes... math) {
    for (int64_t i = 0; i < n; i += V::lanes) {
      const auto values = apply([&](int input) { return V::load(in[input] + i); }, math...);
      [&]<int... O>(std::integer_sequence<int, O...>) {
        ((out[O] != nullptr ? values.value[O].store(out[O] + i) : void()), ...);
        if constexpr (Sums) ((sum[O] != nullptr ? values.value[O].store(sum[O] + i) : void()), ...);
      }(std::make_integer_sequence<int, outputs>());
    }
  }

  template <class Load>
  CPPCUDA_INLINE static auto apply(Load load, Attributes... math) {
    return [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
      const V values[] = {load(I)...};
      return Math{math...}(values[I]...);
    }(std::make_integer_sequence<int, inputs>());
  }
};

// The values of a block of points, each in a row of its own, so that a register has the same value of several points.
inline constexpr int64_t block_of_points = 64;

// Computes a block in the type A, whatever the dtype is, so that the formula is compiled once for all 16-bit dtypes and
// float32. The compiler fuses no products with sums: it would fuse others if fewer gradients are requested, and these
// would then have other bits.
template <class Math, class A, class... Attributes>
struct PointBlock {
  using V = Vec<A>;
  using Row = A[block_of_points];

#if !defined(__clang__)
  [[gnu::optimize("fp-contract=off")]]
#endif
  [[gnu::noinline]] CPPCUDA_FLATTEN static void
  compute(const Row* in, Row* out, int64_t n, unsigned requested, Attributes... math) {
    for (int64_t i = 0; i < n; i += V::lanes) {
      V from[Math::in_count], to[Math::out_count];
      for_constants<Math::in_count>([&](auto row) CPPCUDA_LAMBDA { from[row] = V::load(in[row] + i); });
      Math{math...}(from, to, requested);
      for_constants<Math::outputs>([&](auto o) CPPCUDA_LAMBDA {
        if ((requested >> o & 1) == 0) return;
        for_constants<Math::own[o].count()>([&](auto v) CPPCUDA_LAMBDA {
          constexpr int row = Math::first_row(o) + v;
          to[row].store(out[row] + i);
        });
      });
    }
  }
};

// The loop of a formula of points (points.h). data and steps are those of the tensors' first values. After the steps,
// one for each tensor, come the distances of all values from the first one of their tensor.
template <class Math, class T, class... Attributes>
struct PointLoop {
  using A = opmath<T>;
  using V = Vec<A>;
  static constexpr int tensors = Math::outputs + Math::inputs;
  static constexpr bool may_have_sums = Math::tensors > 1 && Math::outputs > 1;
  static constexpr int64_t block = block_of_points;

  // sums has a bit for each output that is added up.
  CPPCUDA_FLATTEN static void run(char* const* data, const int64_t* steps, int64_t n, unsigned sums,
                                  Attributes... math) {
    unsigned requested = 0;
    for (int o = 0; o < Math::outputs; ++o) requested |= static_cast<unsigned>(data[o] != nullptr) << o;
    const int64_t* const distances = steps + tensors;
    alignas(64) A in[Math::in_count][block], out[Math::out_count][block];
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t count = n - begin < block ? n - begin : block;
      // Memory works on a later block while this one is computed.
      for_constants<tensors>([&](auto t) CPPCUDA_LAMBDA {
        constexpr int64_t bytes = Math::own[t].count() * static_cast<int64_t>(sizeof(T));
        if (data[t] == nullptr || steps[t] != bytes) return;
        const char* const later = data[t] + (begin + 2 * block) * bytes;
        for (int64_t k = 0; k < block * bytes; k += 64) __builtin_prefetch(later + k);
      });
      for_constants<Math::inputs>([&](auto i) CPPCUDA_LAMBDA {
        constexpr int t = Math::outputs + i, row = Math::first_row(t);
        if (steps[t] == 0) {  // all points have the same values
          for (int v = 0; v < Math::own[t].count() && begin == 0; ++v) {
            const A value = static_cast<A>(*reinterpret_cast<const T*>(data[t] + distances[row + v]));
            for (A& each : in[row - Math::out_count + v]) each = value;
          }
          return;
        }
        read<Math::own[t].count()>(data[t] + begin * steps[t], steps[t], distances + row, count,
                                   in + row - Math::out_count);
      });
      PointBlock<Math, A, Attributes...>::compute(in, out, count, requested, math...);
      for_constants<Math::outputs>([&](auto o) CPPCUDA_LAMBDA {
        if ((requested >> o & 1) == 0) return;
        constexpr int row = Math::first_row(o), values = Math::own[o].count();
        char* const at = data[o] + begin * steps[o];
        if constexpr (may_have_sums) {
          if ((sums >> o & 1) != 0) {
            for (int v = 0; v < values; ++v) add_to_sums<V>(at + distances[row + v], steps[o], out[row + v], count);
            return;
          }
        }
        write<values>(at, steps[o], distances + row, count, out + row);
      });
    }
  }

 private:
  // Whether the values of a point are next to each other, and the points too.
  template <int values>
  CPPCUDA_INLINE static bool is_dense(int64_t step, const int64_t* distances) {
    bool result = step == values * static_cast<int64_t>(sizeof(T));
    for (int v = 0; v < values; ++v) result &= distances[v] == v * static_cast<int64_t>(sizeof(T));
    return result;
  }

  // Copies n points of values that lie next to each other to rows, or back. The compiler makes vector instructions of
  // this for two, three and four values; with six, nine and twelve, each third is copied to rows first.
  template <int values, int64_t row>
  CPPCUDA_INLINE static void to_rows(const T* from, int64_t n, T* to) {
    if constexpr (values > 4 && values % 3 == 0) {
      constexpr int64_t third = block * values / 3;
      alignas(64) T thirds[3 * third];
      to_rows<3, third>(from, n * values / 3, thirds);
      for (int k = 0; k < 3; ++k) to_rows<values / 3, 3 * row>(thirds + k * third, n, to + k * row);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        for (int v = 0; v < values; ++v) to[v * row + i] = from[i * values + v];
      }
    }
  }
  template <int values, int64_t row>
  CPPCUDA_INLINE static void from_rows(const T* from, int64_t n, T* to) {
    if constexpr (values > 4 && values % 3 == 0) {
      constexpr int64_t third = block * values / 3;
      alignas(64) T thirds[3 * third];
      for (int k = 0; k < 3; ++k) from_rows<values / 3, 3 * row>(from + k * row, n, thirds + k * third);
      from_rows<3, third>(thirds, n * values / 3, to);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        for (int v = 0; v < values; ++v) to[i * values + v] = from[v * row + i];
      }
    }
  }

  template <int values>
  CPPCUDA_INLINE static void read(const char* from, int64_t step, const int64_t* distances, int64_t n,
                                  A (*rows)[block]) {
    T narrow[std::is_same_v<T, A> ? 1 : values][block];
    const auto to = [&] {
      if constexpr (std::is_same_v<T, A>)
        return rows;
      else
        return narrow;
    }();
    if (is_dense<values>(step, distances)) {
      to_rows<values, block>(reinterpret_cast<const T*>(from), n, to[0]);
    } else {
      for (int v = 0; v < values; ++v) {
        for (int64_t i = 0; i < n; ++i) __builtin_memcpy(&to[v][i], from + i * step + distances[v], sizeof(T));
      }
    }
    for (int64_t i = n; i % V::lanes != 0; ++i) {  // the rest of the last register
      for (int v = 0; v < values; ++v) __builtin_memset(&to[v][i], 0, sizeof(T));
    }
    if constexpr (!std::is_same_v<T, A>) {
      for (int v = 0; v < values; ++v) {
        for (int64_t i = 0; i < n; i += V::lanes) V::load(narrow[v] + i).store(rows[v] + i);
      }
    }
  }

  template <int values>
  CPPCUDA_INLINE static void write(char* to, int64_t step, const int64_t* distances, int64_t n,
                                   const A (*rows)[block]) {
    T narrow[std::is_same_v<T, A> ? 1 : values][block];
    const auto from = [&] {
      if constexpr (std::is_same_v<T, A>)
        return rows;
      else
        return narrow;
    }();
    if constexpr (!std::is_same_v<T, A>) {
      for (int v = 0; v < values; ++v) {
        for (int64_t i = 0; i < n; i += V::lanes) V::load(rows[v] + i).store(narrow[v] + i);
      }
    }
    if (is_dense<values>(step, distances)) {
      from_rows<values, block>(from[0], n, reinterpret_cast<T*>(to));
    } else {
      for (int v = 0; v < values; ++v) {
        for (int64_t i = 0; i < n; ++i) __builtin_memcpy(to + i * step + distances[v], &from[v][i], sizeof(T));
      }
    }
  }
};

}  // namespace CPPCUDA_ISA

// Lists of types cannot be instantiated explicitly; the attribute keeps functions that this file does not call.
template <class Isa, class Math, class T>
[[gnu::used]] void detail::ElementwiseKernel<Isa, Math, T>::run(char* const* data, const int64_t* steps, int64_t n,
                                                                bool nontemporal, unsigned sums,
                                                                [[maybe_unused]] Math math) {
  const auto run = [&]<class... Attributes>(Attributes... attributes) {
    if constexpr (Math::is_of_rows) {
      return RowLoop<Math, T>::run(data, steps, n, sums, attributes...);
    } else if constexpr (Math::is_of_points) {
      return PointLoop<Math, T, Attributes...>::run(data, steps, n, sums, attributes...);
    } else {
      using Loop = ElementwiseLoop<Math, T, Attributes...>;
      // Tensors that broadcast have gradients that are sums.
      if constexpr (Math::tensors > 1 && Math::outputs > 1) {
        if (sums != 0) return Loop::strided(data, steps, n, attributes..., sums);
      }
      Loop::run(data, steps, n, nontemporal, attributes...);
    }
  };
  if constexpr (std::is_empty_v<Math>) {
    run();
  } else {
    run(math);
  }
}

template <class Isa, class TheFamily>
void instantiate_elementwise(TheFamily family) {
  detail::for_each_math(family, []<class Math>() {
    static_cast<void>(&detail::ElementwiseKernel<Isa, Math, double>::run);
    static_cast<void>(&detail::ElementwiseKernel<Isa, Math, float>::run);
    static_cast<void>(&detail::ElementwiseKernel<Isa, Math, c10::Half>::run);
    static_cast<void>(&detail::ElementwiseKernel<Isa, Math, c10::BFloat16>::run);
  });
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
