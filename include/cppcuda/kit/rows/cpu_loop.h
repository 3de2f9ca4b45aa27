#pragma once

// The loop of formulas of rows (formula.h) on the CPU: a row after another, a register of its values at a time.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdlib>
#include <limits>

#include "cppcuda/kit/cpu/functions.h"
#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/math.h"
#include "cppcuda/kit/cpu/vec.h"
#include "cppcuda/kit/math/array.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/unroll.h"
#include "cppcuda/kit/rows/formula.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace CPPCUDA_ISA {

// Memory for rows, which is kept for the next ones.
class RowMemory {
 public:
  explicit RowMemory(int64_t bytes) : bytes_((bytes + 63) / 64 * 64) {}
  RowMemory(const RowMemory&) = delete;
  RowMemory& operator=(const RowMemory&) = delete;
  CPPCUDA_INLINE ~RowMemory() {
    while (first_ != nullptr) {
      Header* const next = first_->next;
      std::free(first_);
      first_ = next;
    }
  }

  CPPCUDA_INLINE void* next() {
    if (*next_ == nullptr) {
      *next_ = static_cast<Header*>(std::aligned_alloc(64, sizeof(Header) + bytes_));
      (*next_)->next = nullptr;
    }
    Header* const header = *next_;
    next_ = &header->next;
    return header + 1;
  }
  CPPCUDA_INLINE void rewind() { next_ = &first_; }

 private:
  struct alignas(64) Header {
    Header* next;
  };
  size_t bytes_;
  Header* first_ = nullptr;
  Header** next_ = &first_;
};

// Places in a row: `count` from number `first` on.
template <class Count>
struct Places {
  int64_t first;
  Count count;
};

template <class V, class T>
struct RowIn {
  const T* data;

  template <class Count>
  CPPCUDA_INLINE V operator[](Places<Count> f) const {
    return V::load(data + f.first, f.count);
  }
};

template <class V, class T>
struct RowOut {
  T* data;

  template <class Count>
  CPPCUDA_INLINE void set(Places<Count> f, V value) const {
    value.store(data + f.first, f.count);
  }
};

// Adds to what the row has.
template <class V, class A>
struct RowSum {
  A* data;

  template <class Count>
  CPPCUDA_INLINE void set(Places<Count> f, V value) const {
    (V::load(data + f.first, f.count) + value).store(data + f.first, f.count);
  }
};

// A row of values that were computed, and their sum, which is left out if it is not used.
template <class V, class A>
struct KeptRow : RowIn<V, A> {
  V total;

  CPPCUDA_INLINE V sum() const { return total; }
};

template <class V>
class Row {
 public:
  using Value = V;
  using A = std::remove_cvref_t<decltype(V().v[0])>;

  CPPCUDA_INLINE Row(int64_t size, RowMemory& kept) : size_(size), kept_(kept) {}

  CPPCUDA_INLINE int64_t size() const { return size_; }
  CPPCUDA_INLINE static V number(double x) { return V(static_cast<A>(x)); }

  template <class F>
  CPPCUDA_INLINE void for_each(F f) const {
    for_vectors<V>(size_, [&](int64_t i, auto count) { f(Places<decltype(count)>{i, count}); });
  }

  template <class F>
  CPPCUDA_INLINE auto sum(F f) const {
    using Result = decltype(f(Places<int64_t>()));
    constexpr int count = sizeof(Result) / sizeof(V);
    const Result totals =
        reduce(f, each<Result>([](int) { return V(A(0)); }), [](Result a, Result b) { return a + b; });
    A sums[count];
    V::sums(reinterpret_cast<const V*>(&totals), std::integral_constant<int, count>(), sums);
    return each<Result>([&](int i) { return V(sums[i]); });
  }
  template <class F>
  CPPCUDA_INLINE auto mean(F f) const {
    const auto total = sum(f);
    return each<decltype(sum(f))>([&](int i) { return part(total, i) / V(static_cast<A>(size_)); });
  }
  template <class F>
  CPPCUDA_INLINE V max(F f) const {
    const auto greater = [](V a, V b) { return select(a == a, select(a > b, a, b), a); };  // NaN if one is
    return join_lanes<V::lanes / 2>(reduce(f, V(-std::numeric_limits<A>::infinity()), greater), greater);
  }

  template <class F>
  CPPCUDA_INLINE auto keep(F f) const {
    A* const to = static_cast<A*>(kept_.next());
    const auto keep_some = [&](auto places) {
      const V values = f(places);
      values.store(to + places.first, places.count);
      return values;
    };
    const V total = sum(keep_some);
    return KeptRow<V, A>{{to}, total};
  }

  template <class T>
  CPPCUDA_INLINE V at(RowIn<V, T> in, int64_t index) const {
    return index < 0 ? V(A(0)) : V(V::load(in.data + index, int64_t{1}).v[0]);
  }
  CPPCUDA_INLINE static V has(int64_t index) { return number(index < 0 ? 0 : 1); }
  template <class Count>
  CPPCUDA_INLINE V is_at(Places<Count> f, int64_t index) const {
    return before(index + 1 - f.first) - before(index - f.first);
  }
  template <class Count>
  CPPCUDA_INLINE V is_before(Places<Count> f, int64_t n) const {
    return before(n - f.first);
  }
  template <class T, class Count>
  CPPCUDA_INLINE V rolled(RowIn<V, T> in, Places<Count> f, int64_t n) const {
    const int64_t from = (f.first + n) % size_;
    if (from + f.count <= size_) return V::load(in.data + from, f.count);
    T values[V::lanes];
    for (int64_t i = 0; i < f.count; ++i) {
      __builtin_memcpy(values + i, in.data + (from + i < size_ ? from + i : from + i - size_), sizeof(T));
    }
    return V::load(values, static_cast<int64_t>(f.count));
  }

 private:
  // 1 in the first n lanes, 0 in the others.
  CPPCUDA_INLINE static V before(int64_t n) {
    n = n < 0 ? 0 : n > V::lanes ? V::lanes : n;
    V lane;
    for (int i = 0; i < V::lanes; ++i) lane.v[i] = static_cast<A>(i);
    return select(lane < V(static_cast<A>(n)), V(A(1)), V(A(0)));
  }

  // A V or an Array of them, and its parts.
  template <class Result, class F>
  CPPCUDA_INLINE static Result each(F f) {
    if constexpr (std::is_same_v<Result, V>) {
      return f(0);
    } else {
      return Result::of(f);
    }
  }
  template <class Values>
  CPPCUDA_INLINE static V part(const Values& values, int i) {
    if constexpr (std::is_same_v<Values, V>) {
      return values;
    } else {
      return values[i];
    }
  }

  template <int distance, class Join>
  CPPCUDA_INLINE static V join_lanes(V all, Join join) {
    if constexpr (distance == 0) {
      return all;
    } else {
      const V other = [&]<int... I>(std::integer_sequence<int, I...>) {
        return V(__builtin_shufflevector(all.v, all.v, (I ^ distance)...));
      }(std::make_integer_sequence<int, V::lanes>());
      return join_lanes<distance / 2>(join(all, other), join);
    }
  }

  // Several registers at a time, because each result waits for the one before it.
  template <class Result, class F, class Join>
  CPPCUDA_INLINE Result reduce(F f, Result none, Join join) const {
    constexpr int several = 4;
    Result all[several];
    for (int k = 0; k < several; ++k) all[k] = none;
    const std::integral_constant<int, V::lanes> whole;
    int64_t i = 0;
    for (; i + several * V::lanes <= size_; i += several * V::lanes) {
      for (int k = 0; k < several; ++k) all[k] = join(all[k], f(Places<decltype(whole)>{i + k * V::lanes, whole}));
    }
    for (; i + V::lanes <= size_; i += V::lanes) all[0] = join(all[0], f(Places<decltype(whole)>{i, whole}));
    if (i < size_) {
      const Result rest = f(Places<int64_t>{i, size_ - i});
      const auto is_valid = before(size_ - i) > V(A(0));
      all[1] = join(all[1], each<Result>([&](int k) { return select(is_valid, part(rest, k), part(none, k)); }));
    }
    return join(join(all[0], all[1]), join(all[2], all[3]));
  }

  int64_t size_;
  RowMemory& kept_;
};

// steps, in bytes, are those from row to row, followed by those from value to value. `sums` has a bit for each output
// that is added to numbers of type double.
template <class Math, class T>
class RowLoop {
 public:
  CPPCUDA_INLINE static void run(char* const* data, const int64_t* steps, int64_t n, unsigned sums, Math math) {
    for (int o = 0; o < outputs; ++o) {
      const bool is_rare = (sums >> o & 1) != 0 && Math::own[o].is_row() && !Math::own[o].is_one_row;
      if (is_rare && Math::is_backward) return rows<true>(data, steps, n, sums, math);
    }
    rows<false>(data, steps, n, sums, math);
  }

 private:
  static constexpr int inputs = Math::inputs, outputs = Math::outputs;
  using A = opmath<T>;
  using V = Vec<A, /*Fast*/ sizeof(T) == 2>;

  template <int t>
  using Element = std::conditional_t<Math::own[t].is_index, int64_t, std::conditional_t<Math::own[t].is_opmath, A, T>>;

  // Whether the rows of an output are added up: those of a gradient that may be one for all rows.
  template <int o, bool AllSums>
  static constexpr bool adds = Math::is_backward && Math::own[o].is_row() && (AllSums || Math::own[o].is_one_row);
  template <int o, bool AllSums>
  static auto out_type() {
    if constexpr (!Math::own[o].is_row()) {
      return std::type_identity<V>();
    } else if constexpr (adds<o, AllSums>) {
      return std::type_identity<RowSum<V, A>>();
    } else {
      return std::type_identity<RowOut<V, Element<o>>>();
    }
  }
  template <int o, bool AllSums>
  using Out = typename decltype(out_type<o, AllSums>())::type;
  template <bool AllSums, class O>
  struct Outs;
  template <bool AllSums, int... O>
  struct Outs<AllSums, std::integer_sequence<int, O...>> : detail::NumberedAttribute<O, Out<O, AllSums>>... {};

  template <bool AllSums>
  [[gnu::noinline]] CPPCUDA_FLATTEN static void rows(char* const* data, const int64_t* steps, int64_t n, unsigned sums,
                                                     Math math) {
    // So many rows are added in A; then their sum is added to one in float64.
    constexpr int64_t most_added = 64;
    const int64_t size = math.features, *const inner = steps + outputs + inputs;
    RowMemory memory(size * static_cast<int64_t>(sizeof(double))), kept(size * static_cast<int64_t>(sizeof(A)));
    void* own[outputs + inputs] = {};  // memory for an operand that the formula cannot use in place
    const char* copied[inputs] = {};
    for_constants<outputs + inputs>([&](auto operand) {
      constexpr int t = decltype(operand)::value;
      if constexpr (Math::own[t].is_row()) {
        bool is_direct = inner[t] == sizeof(Element<t>) && data[t] != nullptr;
        if constexpr (t < outputs) {
          for (int i = 0; i < inputs; ++i) is_direct &= data[t] != data[outputs + i];  // in place
          is_direct &= !adds<t, AllSums>;
        }
        if (!is_direct) own[t] = memory.next();
        if constexpr (t < outputs) {
          if constexpr (adds<t, AllSums>) clear(static_cast<A*>(own[t]), size);
        }
      }
    });
    for (int64_t r = 0; r < n; ++r) {
      kept.rewind();
      for_constants<inputs>([&](auto input) {
        constexpr int i = decltype(input)::value, t = outputs + i;
        const char* const from = data[t] + r * steps[t];
        if (!Math::own[t].is_row() || own[t] == nullptr || from == copied[i]) return;
        copied[i] = from;
        auto* const to = static_cast<Element<t>*>(own[t]);
        for (int64_t k = 0; k < size; ++k) __builtin_memcpy(to + k, from + k * inner[t], sizeof(Element<t>));
      });
      Outs<AllSums, std::make_integer_sequence<int, outputs>> outs;
      for_constants<outputs>([&](auto output) {
        constexpr int o = decltype(output)::value;
        if constexpr (Math::own[o].is_row()) {
          auto& out = static_cast<detail::NumberedAttribute<o, Out<o, AllSums>>&>(outs).value;
          void* const to = own[o] != nullptr ? own[o] : data[o] + r * steps[o];
          out.data = static_cast<decltype(out.data)>(to);
        }
      });
      math(
          Row<V>(size, kept),
          [&](auto input) {
            constexpr int i = decltype(input)::value, t = outputs + i;
            const char* const from = data[t] + r * steps[t];
            if constexpr (Math::own[t].is_row()) {
              return RowIn<V, Element<t>>{
                  static_cast<const Element<t>*>(own[t] != nullptr ? own[t] : static_cast<const void*>(from))};
            } else if constexpr (Math::own[t].is_index) {
              return *reinterpret_cast<const int64_t*>(from);
            } else {
              return V(V::load(reinterpret_cast<const Element<t>*>(from), int64_t{1}).v[0]);
            }
          },
          [&](auto output) -> auto& {
            constexpr int o = decltype(output)::value;
            return static_cast<detail::NumberedAttribute<o, Out<o, AllSums>>&>(outs).value;
          });
      for_constants<outputs>([&](auto output) {
        constexpr int o = decltype(output)::value;
        if (data[o] == nullptr) return;
        const auto& out = static_cast<detail::NumberedAttribute<o, Out<o, AllSums>>&>(outs).value;
        const bool is_sum = (sums >> o & 1) != 0;
        char* const to = data[o] + r * steps[o];
        if constexpr (!Math::own[o].is_row()) {
          if (is_sum) {
            *reinterpret_cast<double*>(to) += out.v[0];
          } else {
            out.store(reinterpret_cast<Element<o>*>(to), int64_t{1});
          }
        } else if constexpr (adds<o, AllSums>) {
          if (is_sum && steps[o] == 0 && (r + 1) % most_added != 0 && r + 1 < n) return;
          if (is_sum) {
            for (int64_t k = 0; k < size; ++k) *reinterpret_cast<double*>(to + k * inner[o]) += out.data[k];
          } else {
            store(out.data, to, inner[o], size, std::type_identity<Element<o>>());
          }
          clear(out.data, size);
        } else if (own[o] != nullptr) {
          for (int64_t k = 0; k < size; ++k) __builtin_memcpy(to + k * inner[o], out.data + k, sizeof(Element<o>));
        }
      });
    }
  }

  CPPCUDA_INLINE static void clear(A* row, int64_t size) { __builtin_memset(row, 0, size * sizeof(A)); }

  template <class E>
  CPPCUDA_INLINE static void store(const A* row, char* to, int64_t step, int64_t size, std::type_identity<E>) {
    if (step == sizeof(E)) {
      for_vectors<V>(
          size, [&](int64_t k, auto count) { V::load(row + k, count).store(reinterpret_cast<E*>(to) + k, count); });
    } else {
      for (int64_t k = 0; k < size; ++k) {
        V::load(row + k, int64_t{1}).store(reinterpret_cast<E*>(to + k * step), int64_t{1});
      }
    }
  }
};

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
