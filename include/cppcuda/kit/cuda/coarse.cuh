#pragma once

// The type that formulas of 16-bit elements compute with.

#include <type_traits>

#include "cppcuda/kit/cuda/approximate.cuh"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/math/select.h"

namespace cppcuda::kit {

// A float whose exp and quotients are single instructions of the GPU, without the further steps that make all bits of a
// float right. With those, instructions would bound 16-bit kernels, not memory. exp(x) is off by 2^-22 + |x| 2^-23 of
// it, a quotient by 2^-22; either is 0 where it would be subnormal.
struct Coarse {
  float value;

  Coarse() = default;
  __device__ explicit Coarse(float v) : value(v) {}
  __device__ operator float() const { return value; }

  friend __device__ Coarse operator-(Coarse a) { return Coarse(-a.value); }
  friend __device__ Coarse operator+(Coarse a, Coarse b) { return Coarse(a.value + b.value); }
  friend __device__ Coarse operator-(Coarse a, Coarse b) { return Coarse(a.value - b.value); }
  friend __device__ Coarse operator*(Coarse a, Coarse b) { return Coarse(a.value * b.value); }
  friend __device__ Coarse operator/(Coarse a, Coarse b) { return Coarse(a.value * approximate_reciprocal(b.value)); }
  __device__ Coarse& operator+=(Coarse a) { return *this = *this + a; }
  friend __device__ bool operator<(Coarse a, Coarse b) { return a.value < b.value; }
  friend __device__ bool operator<=(Coarse a, Coarse b) { return a.value <= b.value; }
  friend __device__ Coarse abs(Coarse a) { return Coarse(fabsf(a.value)); }
  friend __device__ Coarse exp(Coarse a) { return Coarse(exp_of(a.value)); }

  // Near 0 Taylor polynomials, where what follows would cancel.
  friend __device__ Coarse expm1(Coarse a) {
    const float x = a.value, near = x * (1 + x * (0.5F + x * (1.0F / 6)));
    return Coarse(select(fabsf(x) < 0.03125F, near, exp_of(x) - 1));
  }
  friend __device__ Coarse tanh(Coarse a) {
    const float x = a.value, xx = x * x, near = x * (1 - xx * (1.0F / 3 - xx * (2.0F / 15)));
    return Coarse(select(fabsf(x) < 0.125F, near, 1 - 2 * approximate_reciprocal(exp_of(2 * x) + 1)));
  }

 private:
  static __device__ float exp_of(float x) { return approximate_exp2(x * 1.44269504F); }
};

// For elements of these types.
template <class T, class... Others>
using elementwise_math = std::conditional_t<sizeof(T) == 2 && ((sizeof(Others) == 2) && ...), Coarse, opmath<T>>;

}  // namespace cppcuda::kit
