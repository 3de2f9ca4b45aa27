#pragma once

#include <type_traits>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The type of sums, equal to at::opmath_type, which kernels cannot include without ATen.
template <class T>
using opmath = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
