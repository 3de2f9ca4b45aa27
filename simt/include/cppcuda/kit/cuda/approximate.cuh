#pragma once

// Stands for include/cppcuda/kit/cuda/approximate.cuh, as exact as may be.

#include <cmath>
#include <limits>

namespace cppcuda::kit {

inline float without_subnormal(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0 : x; }

inline float approximate_exp2(float x) { return without_subnormal(std::exp2(without_subnormal(x))); }

inline float approximate_reciprocal(float x) { return without_subnormal(1 / without_subnormal(x)); }

}  // namespace cppcuda::kit
