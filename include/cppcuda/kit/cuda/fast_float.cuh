#pragma once

// The type in which formulas compute 16-bit elements.

#include <type_traits>

#include "cppcuda/kit/cuda/approximate.cuh"
#include "cppcuda/kit/math/functions.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/select.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// A float whose exp and quotients are single instructions of the GPU, without the steps that make the last bits exact.
// With these steps 16-bit kernels would be bound by instructions, not by memory. The relative error of exp(x) is 2^-22
// + |x| 2^-23, that of a quotient 2^-22; subnormal results are 0.
struct FastFloat {
  float value;

  FastFloat() = default;
  __device__ explicit FastFloat(float v) : value(v) {}
  __device__ operator float() const { return value; }

  friend __device__ FastFloat operator-(FastFloat a) { return FastFloat(-a.value); }
  friend __device__ FastFloat operator+(FastFloat a, FastFloat b) { return FastFloat(a.value + b.value); }
  friend __device__ FastFloat operator-(FastFloat a, FastFloat b) { return FastFloat(a.value - b.value); }
  friend __device__ FastFloat operator*(FastFloat a, FastFloat b) { return FastFloat(a.value * b.value); }
  friend __device__ FastFloat operator/(FastFloat a, FastFloat b) {
    return FastFloat(a.value * approximate_reciprocal(b.value));
  }
  friend __device__ FastFloat fma(FastFloat a, FastFloat b, FastFloat c) {
    return FastFloat(fmaf(a.value, b.value, c.value));
  }
  __device__ FastFloat& operator+=(FastFloat a) { return *this = *this + a; }
  friend __device__ bool operator<(FastFloat a, FastFloat b) { return a.value < b.value; }
  friend __device__ bool operator<=(FastFloat a, FastFloat b) { return a.value <= b.value; }
  friend __device__ FastFloat abs(FastFloat a) { return FastFloat(fabsf(a.value)); }
  friend __device__ FastFloat exp(FastFloat a) { return FastFloat(exp_of(a.value)); }

  // Taylor polynomials near 0, where the formula below would cancel.
  friend __device__ FastFloat expm1_of_negative(FastFloat a) {
    const float x = a.value, near = x * (1 + x * (0.5F + x * (1.0F / 6)));
    return FastFloat(select(fabsf(x) < 0.03125F, near, exp_of(x) - 1));
  }
  friend __device__ FastFloat tanh(FastFloat a) {
    const float x = a.value, xx = x * x, near = x * (1 - xx * (1.0F / 3 - xx * (2.0F / 15)));
    return FastFloat(select(fabsf(x) < 0.125F, near, 1 - 2 * approximate_reciprocal(exp_of(2 * x) + 1)));
  }

#define CPPCUDA_FUNCTION(name, ...) \
  friend __device__ FastFloat name(FastFloat a) { return FastFloat(std::name(a.value)); }
  CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
  CPPCUDA_FUNCTION(ceil)
  CPPCUDA_FUNCTION(floor)
  CPPCUDA_FUNCTION(rint)
  CPPCUDA_FUNCTION(sqrt)
  CPPCUDA_FUNCTION(trunc)
#undef CPPCUDA_FUNCTION
#define CPPCUDA_FUNCTION(name, ...) \
  friend __device__ FastFloat name(FastFloat a, FastFloat b) { return FastFloat(std::name(a.value, b.value)); }
  CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
  CPPCUDA_FUNCTION(copysign)
#undef CPPCUDA_FUNCTION

 private:
  static __device__ float exp_of(float x) { return approximate_exp2(x * 1.44269504F); }
};

// The specialisations for elements of 16 bits.
template <class T, class... Others>
using elementwise_math = std::conditional_t<sizeof(T) == 2 && ((sizeof(Others) == 2) && ...), FastFloat, opmath<T>>;

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
