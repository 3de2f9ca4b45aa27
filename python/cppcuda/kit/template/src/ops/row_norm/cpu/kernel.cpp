// The CPU kernels, compiled once per instruction set. Change: the loops. Call only what is inlined: the kit's vectors,
// and functions like those of math.h.
#include "ops/row_norm/cpu/kernel.h"

#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/vec.h"
#include "ops/row_norm/math.h"

namespace my_ops::ops::row_norm {
inline namespace CPPCUDA_ISA {

// `count` values of a row, from value f on. The other lanes of the vector are zero.
template <class V, class T, class Count>
CPPCUDA_INLINE V load(const T* row, int64_t f, int64_t step, Count count) {
  return step == 1 ? V::load(row + f, count) : V::load(row + f * step, step, count);
}

template <class V, class A>
CPPCUDA_INLINE A sum(V lanes) {
  A result;
  V::sums(&lanes, std::integral_constant<int, 1>(), &result);
  return result;
}

}  // namespace CPPCUDA_ISA

template <class Isa, class T>
CPPCUDA_FLATTEN void RowKernel<Isa, T>::forward(const ForwardParams<T>& p, int64_t begin, int64_t end) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  for (int64_t row = begin; row < end; ++row) {
    const T* input = p.input.at(p.rows, row);
    V squares = 0;
    kit::for_vectors<V>(p.features, [&](int64_t f, auto count) {
      const V x = load<V>(input, f, p.input.inner, count);
      squares = fma(x, x, squares);
    });
    const A rstd = reciprocal_std(sum<V, A>(squares), p.features, p.eps);
    if (p.rstd) p.rstd[row] = rstd;
    kit::for_vectors<V>(p.features, [&](int64_t f, auto count) {
      (rstd * load<V>(input, f, p.input.inner, count)).store(p.output + row * p.features + f, count);
    });
  }
}

template <class Isa, class T>
CPPCUDA_FLATTEN void RowKernel<Isa, T>::backward(const BackwardParams<T>& p, int64_t begin, int64_t end) {
  using A = kit::opmath<T>;
  using V = kit::Vec<A>;
  for (int64_t row = begin; row < end; ++row) {
    const T *grad = p.grad.at(p.rows, row), *input = p.input.at(p.rows, row);
    const A rstd = *p.rstd.at(p.rows, row);
    V dot = 0;
    kit::for_vectors<V>(p.features, [&](int64_t f, auto count) {
      dot = fma(load<V>(grad, f, p.grad.inner, count), load<V>(input, f, p.input.inner, count), dot);
    });
    const A mean = rstd * sum<V, A>(dot) / static_cast<A>(p.features);
    kit::for_vectors<V>(p.features, [&](int64_t f, auto count) {
      const V g = load<V>(grad, f, p.grad.inner, count), x = load<V>(input, f, p.input.inner, count);
      input_gradient<V>(g, x, rstd, mean).store(p.grad_input + row * p.features + f, count);
    });
  }
}

template struct RowKernel<kit::Isa, double>;
template struct RowKernel<kit::Isa, float>;
template struct RowKernel<kit::Isa, c10::Half>;
template struct RowKernel<kit::Isa, c10::BFloat16>;

}  // namespace my_ops::ops::row_norm
