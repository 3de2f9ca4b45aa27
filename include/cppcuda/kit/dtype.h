#pragma once

// Calls a function with the C++ type of a dtype.

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <type_traits>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

inline bool is_16bit(c10::ScalarType dtype) { return dtype == c10::kHalf || dtype == c10::kBFloat16; }

// Calls f(std::type_identity<T>{}) with the C++ type of a dtype that Checker::floating accepts.
template <class F>
void visit_dtype(c10::ScalarType dtype, F&& f) {
  switch (dtype) {
    case c10::kDouble:
      return f(std::type_identity<double>{});
    case c10::kFloat:
      return f(std::type_identity<float>{});
    case c10::kHalf:
      return f(std::type_identity<c10::Half>{});
    case c10::kBFloat16:
      return f(std::type_identity<c10::BFloat16>{});
    default:
      TORCH_INTERNAL_ASSERT(false, "unchecked dtype ", dtype);
  }
}

// Calls f with the types of two arguments that Checker::same_or_wider_dtype accepts: the same type, or a 16-bit type
// and float.
template <class F>
void visit_dtypes(c10::ScalarType dtype, c10::ScalarType same_or_wider, F&& f) {
  visit_dtype(dtype, [&]<class T>(std::type_identity<T> t) {
    if constexpr (sizeof(T) == 2) {
      if (same_or_wider == c10::kFloat) return f(t, std::type_identity<float>{});
    }
    f(t, t);
  });
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
