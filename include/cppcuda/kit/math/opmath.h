#pragma once

#include <type_traits>

namespace cppcuda::kit {

// The accumulation type, like at::opmath_type, which kernels cannot include without ATen.
template <class T>
using opmath = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace cppcuda::kit
