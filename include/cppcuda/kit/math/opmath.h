#pragma once

#include <type_traits>

namespace cppcuda::kit {

// The type that sums are taken in, as at::opmath_type, which kernels cannot include without ATen.
template <class T>
using opmath = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace cppcuda::kit
