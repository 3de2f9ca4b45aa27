#pragma once

// Replaces include/cppcuda/kit/cuda/approximate.cuh. The results are as exact as possible; subnormal numbers are
// flushed to 0, as on a GPU.

#include <cmath>
#include <limits>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

inline float flush_subnormal(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0 : x; }

inline float approximate_exp2(float x) { return flush_subnormal(std::exp2(flush_subnormal(x))); }

inline float approximate_reciprocal(float x) { return flush_subnormal(1 / flush_subnormal(x)); }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
