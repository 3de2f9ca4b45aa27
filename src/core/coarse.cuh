#pragma once

// What formulas of 16-bit elements are computed with.

#include <type_traits>

#include "core/opmath.h"

namespace cppcuda::core {

// A float whose exp and quotients are the GPU's own instructions, without the steps and the branch that give the last
// bits of a float: otherwise instructions bound 16 bits, not memory. exp(x) is off by 2 + 1.2 |x| ulp of a float, a
// quotient by 2; one whose denominator is above 2^126 is 0.
struct Coarse {
  float value;

  Coarse() = default;
  __device__ explicit Coarse(float v) : value(v) {}
  __device__ explicit operator float() const { return value; }

  friend __device__ Coarse operator-(Coarse a) { return Coarse(-a.value); }
  friend __device__ Coarse operator+(Coarse a, Coarse b) { return Coarse(a.value + b.value); }
  friend __device__ Coarse operator-(Coarse a, Coarse b) { return Coarse(a.value - b.value); }
  friend __device__ Coarse operator*(Coarse a, Coarse b) { return Coarse(a.value * b.value); }
  friend __device__ Coarse operator/(Coarse a, Coarse b) { return Coarse(__fdividef(a.value, b.value)); }
  friend __device__ bool operator<(Coarse a, Coarse b) { return a.value < b.value; }
  friend __device__ Coarse abs(Coarse a) { return Coarse(fabsf(a.value)); }
  friend __device__ Coarse exp(Coarse a) { return Coarse(__expf(a.value)); }
};

template <class T>
using elementwise_math = std::conditional_t<sizeof(T) == 2, Coarse, opmath<T>>;

}  // namespace cppcuda::core
