// The CPU kernels, compiled once per instruction set. Each lane of a vector computes a point.
#include "ops/spherical_harmonics/cpu/kernel.h"

#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/vec.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/unroll.h"
#include "ops/spherical_harmonics/math.h"

namespace sph::ops::spherical_harmonics {
inline namespace CPPCUDA_ISA {

template <class A>
constexpr Table<A> table;

// The rows of one point per lane, from row `first` on. Where there are fewer, the last row is repeated.
template <class T>
struct Block {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;

  int64_t first;
  int count;

  CPPCUDA_INLINE Block(int64_t begin, int64_t end)
      : first(begin), count(end - begin < V::lanes ? static_cast<int>(end - begin) : V::lanes) {}

  // to[f] has value f of each row, f = 0 .. n - 1.
  CPPCUDA_INLINE void load(const kit::RowsOf<T>& from, const kit::Rows& rows, int64_t axis, int64_t n, V* to) const {
    const T* row[V::lanes];
    CPPCUDA_UNROLL(16)
    for (int i = 0; i < V::lanes; ++i) {
      row[i] = from.at(rows, first + (i < count ? i : count - 1)) + axis * from.outer;
    }
    kit::for_vectors<V>(n, [&](int64_t f, auto values) {
      V v[V::lanes];
      CPPCUDA_UNROLL(16)
      for (int i = 0; i < V::lanes; ++i) {
        v[i] = from.inner == 1 ? V::load(row[i] + f, values) : V::load(row[i] + f * from.inner, from.inner, values);
      }
      V::transpose(v);
      CPPCUDA_UNROLL(16)
      for (int i = 0; i < V::lanes; ++i) {
        if (i < values) to[f + i] = v[i];
      }
    });
  }

  // The inverse, to contiguous rows of n values.
  CPPCUDA_INLINE void store(const V* from, T* to, int64_t n) const {
    kit::for_vectors<V>(n, [&](int64_t f, auto values) {
      V v[V::lanes];
      CPPCUDA_UNROLL(16)
      for (int i = 0; i < V::lanes; ++i) v[i] = i < values ? from[f + i] : V(A(0));
      V::transpose(v);
      CPPCUDA_UNROLL(16)
      for (int i = 0; i < V::lanes; ++i) {
        if (i < count) v[i].store(to + (first + i) * n + f, values);
      }
    });
  }

  CPPCUDA_INLINE Point<V> load_point(const kit::RowsOf<T>& xyz, const kit::Rows& rows) const {
    V v[3];
    load(xyz, rows, 0, 3, v);
    return {v[0], v[1], v[2]};
  }
};

template <class T, class F>
CPPCUDA_INLINE void for_each_block(int64_t begin, int64_t end, F f) {
  for (int64_t first = begin; first < end; first += Block<T>::V::lanes) f(Block<T>(first, end));
}

}  // namespace CPPCUDA_ISA

template <class Isa, class T>
CPPCUDA_FLATTEN void RowKernel<Isa, T>::run(const ForwardParams<T>& p, int64_t begin, int64_t end) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  V values[size(max_degree)];
  for_each_block<T>(begin, end, [&](const Block<T>& block) {
    Point<V> point = block.load_point(p.xyz, p.rows);
    if (p.normalize) point = point.scaled(inverse_norm(point));
    harmonics(table<A>, p.degree, point, [&](int i, V value) { values[i] = value; });
    block.store(values, p.output, size(p.degree));
  });
}

template <class Isa, class T>
CPPCUDA_FLATTEN void RowKernel<Isa, T>::run(const BackwardParams<T>& p, int64_t begin, int64_t end) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  V grad[size(max_degree)];
  for_each_block<T>(begin, end, [&](const Block<T>& block) {
    Point<V> point = block.load_point(p.xyz, p.rows);
    V inverse = 1;
    if (p.normalize) {
      inverse = inverse_norm(point);
      point = point.scaled(inverse);
    }
    block.load(p.grad, p.rows, 0, size(p.degree), grad);
    Point<V> result = gradient(table<A>, p.degree, point, [&](int i) { return grad[i]; });
    if (p.normalize) result = project(result, point, inverse);
    const V xyz[] = {result.x, result.y, result.z};
    block.store(xyz, p.grad_xyz, 3);
  });
}

template <class Isa, class T>
CPPCUDA_FLATTEN void RowKernel<Isa, T>::run(const PartialsParams<T>& p, int64_t begin, int64_t end) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  const int n = size(p.degree);
  V from[size(max_degree - 1)], to[3 * size(max_degree)];
  for_each_block<T>(begin, end, [&](const Block<T>& block) {
    block.load(p.harmonics, p.rows, 0, size(p.degree - 1), from);
    partials<V>(
        table<A>, p.degree, [&](int i) { return from[i]; }, [&](int d, int i, V value) { to[d * n + i] = value; });
    block.store(to, p.output, 3 * n);
  });
}

template <class Isa, class T>
CPPCUDA_FLATTEN void RowKernel<Isa, T>::run(const PartialsTransposedParams<T>& p, int64_t begin, int64_t end) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  const int n = size(p.degree), lower = size(p.degree - 1);
  V from[3 * size(max_degree)], to[size(max_degree - 1)];
  for_each_block<T>(begin, end, [&](const Block<T>& block) {
    for (int d = 0; d < 3; ++d) block.load(p.grad, p.rows, d, n, from + d * n);
    partials_transposed<V>(
        table<A>, p.degree, [&](int d, int i) { return from[d * n + i]; }, [&](int i, V value) { to[i] = value; });
    block.store(to, p.output, lower);
  });
}

template struct RowKernel<kit::Isa, double>;
template struct RowKernel<kit::Isa, float>;
template struct RowKernel<kit::Isa, c10::Half>;
template struct RowKernel<kit::Isa, c10::BFloat16>;

}  // namespace sph::ops::spherical_harmonics
